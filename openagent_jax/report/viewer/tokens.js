// The tokens of an episode, where the evaluation kept them; see `report/trajectories.py`.
// All of them are attended to. Those that the policy sampled have a background, the
// stronger the less likely they were; they are what the loss counts, and each unbroken
// run of them is a turn, which is what credit is given to.

const LEVELS = [0.9, 0.5, 0.1, 0]; // least probability of each level

// End tokens may be control characters, which nobody would see.
const visible = (text) =>
  text.replace(/[\0-\x09\x0b-\x1f]/g, (x) => String.fromCharCode(0x2400 + x.charCodeAt(0)));

function tokenView(tokens) {
  const texts = Array.isArray(tokens?.text) ? tokens.text.map((x) => visible(String(x))) : [];
  const sampled = Array.isArray(tokens?.sampled) ? tokens.sampled : [];
  const logProbs = Array.isArray(tokens?.log_prob) ? tokens.log_prob.map(Number) : [];
  let [next, turn, sum] = [0, 0, 0];
  const parts = [];
  let plain = "";
  texts.forEach((text, k) => {
    if (!sampled[k]) {
      plain += text;
      return;
    }
    if (plain) parts.push(plain);
    plain = "";
    if (!sampled[k - 1])
      parts.push(el("span.turn", { "aria-label": `turn ${turn + 1}` }, `${++turn}`));
    const logProb = logProbs[next++];
    const probability = Math.exp(logProb);
    const level = LEVELS.findIndex((least) => probability >= least);
    if (Number.isFinite(logProb)) sum += logProb;
    parts.push(
      el(
        `span.token.level-${level}`,
        {
          title: `${JSON.stringify(text)}, log-prob ${logProb} (probability ${probability.toFixed(3)})`,
        },
        text,
      ),
    );
  });
  if (plain) parts.push(plain);
  const legend = ["90 % or more", "50 %", "10 %", "less"].map((text, level) =>
    el(`span.token.level-${level}`, {}, text),
  );
  return el(
    "details",
    {},
    el(
      "summary",
      {},
      `${many(texts.length, "token")}, ${next.toLocaleString("en")} of them sampled, with a log-prob of ${sum.toFixed(2)} in sum`,
    ),
    el(
      "p.soft",
      {},
      "The policy attends to all. Those with a background were sampled: the loss counts them alone, and credit goes to the turns that they make. By their probability: ",
      ...legend.flatMap((x) => [x, " "]),
    ),
    el("p.tokens", {}, ...parts),
  );
}
