// The pane of one episode, or of two of them side by side.

const SENTENCES = {
  unanswered: "A reply of the agent never came.",
  out_of_context: "The context had no room for another turn.",
  out_of_turns: "It ran out of turns.",
  false_refusal: "It refused a task that can be solved.",
  missed_refusal: "It did not refuse a task that cannot be solved.",
  wrong_answer: "It ended with a wrong answer.",
};

function verdictText(episodes, i) {
  const reason = episodes.failure(i);
  if (!episodes.is(i, "success"))
    return Object.hasOwn(SENTENCES, reason)
      ? SENTENCES[reason]
      : `It failed: ${words(reason)}.`;
  return episodes.is(i, "refused") ? "It rightly refused the task." : "It solved the task.";
}

function facts(episodes, i) {
  const { num_calls, num_errors, fewest_calls, unsolvable } = episodes.table;
  const why = episodes.reasons[unsolvable[i]];
  const made = [`${many(num_calls[i], "call")}, ${many(num_errors[i], "error")}`];
  if (episodes.is(i, "solvable"))
    made.push(`the oracle needs ${many(fewest_calls[i], "call")}`);
  else made.push(`the task cannot be solved${why ? `: ${words(why)}` : ""}`);
  return made.join("; ");
}

function outcomeMark(episodes, i) {
  const good = episodes.is(i, "success");
  return el(`span.mark.${good ? "good" : "bad"}`, { "aria-hidden": "true" }, good ? "✓" : "✕");
}

function section(title, make, attributes = {}) {
  let body;
  try {
    body = [make()].flat();
  } catch (error) {
    // one strange field must not hide the rest
    body = [el("p.soft", {}, `This part cannot be shown (${error.message}).`)];
  }
  return el("section.part", attributes, el("h4", {}, title), ...body);
}

function toolItem([before, after]) {
  const kind = !before ? "added" : !after ? "removed" : "both";
  const blank = { signature: "", description: "", notes: "" };
  const [a, b] = [before ?? blank, after ?? blank];
  const texts = (key) => (kind === "both" ? diffed(a[key], b[key]) : [a[key] || b[key]]);
  return el(
    `li.tool.${kind}`,
    {},
    kind === "added" && tag("added", "changed"),
    kind === "removed" && tag("removed", "changed"),
    el("code", {}, ...texts("signature")),
    el("p", {}, ...texts("description")),
    (a.notes || b.notes) && el("p.text", {}, ...texts("notes")),
  );
}

// The request and the tools, with their differences from those of the clean task.
function changes(episodes, details, clean) {
  const request = (x) => contentOf(x.messages.find((message) => message.role === "user") ?? {});
  if (!clean) {
    const tools = details.tools.map(described).map((tool) => [tool, tool]);
    return [
      !episodes.clean(details.i) &&
        episodes.scenario(details.i) !== "clean" &&
        el(
          "p.soft",
          {},
          "The clean episode of this task was not kept, so nothing can be compared.",
        ),
      el("p.text", {}, request(details)),
      el(
        "details",
        {},
        el("summary", {}, many(tools.length, "tool")),
        el("ul.tools", {}, ...tools.map(toolItem)),
      ),
    ];
  }
  const pairs = pairTools(clean.tools, details.tools);
  const same = ([a, b]) => a && b && JSON.stringify(a) === JSON.stringify(b);
  const changed = pairs.filter((pair) => !same(pair));
  const unchanged = pairs.filter(same);
  const removed = changed.filter(([, b]) => !b);
  const shown = removed.length > 3 ? changed.filter(([, b]) => b) : changed;
  const moved =
    JSON.stringify(clean.tools.map(described).map((x) => x.name)) !==
      JSON.stringify(details.tools.map(described).map((x) => x.name)) && !changed.length;
  const [before, after] = [request(clean), request(details)];
  const untouched = before === after && !changed.length && !moved;
  return [
    untouched &&
      el(
        "p.soft",
        {},
        episodes.is(details.i, "changed")
          ? "The request and the tools are those of the clean task: what changes shows in the results."
          : "The scenario leaves this task as it is.",
      ),
    el("p.text", {}, ...diffed(before, after)),
    shown.length > 0 && el("ul.tools", {}, ...shown.map(toolItem)),
    shown !== changed &&
      el(
        "details",
        {},
        el("summary", {}, `${removed.length} tools removed`),
        el("ul.tools", {}, ...removed.map(toolItem)),
      ),
    moved && el("p.soft", {}, "The tools stand in another order."),
    unchanged.length > 0 &&
      el(
        "details",
        {},
        el(
          "summary",
          {},
          `${many(unchanged.length, changed.length ? "other tool" : "tool")}, as on the clean task`,
        ),
        el("ul.tools", {}, ...unchanged.map(toolItem)),
      ),
  ];
}

function verdict(episodes, i) {
  return el(
    `p.verdict.${episodes.is(i, "success") ? "good" : "bad"}`,
    {},
    el("b", {}, verdictText(episodes, i)),
    " ",
    el("span", {}, `${facts(episodes, i)}.`),
    ...causeOf(episodes, i),
  );
}

function causeOf(episodes, i) {
  const cause = episodes.cause(i);
  if (!cause) return [];
  const [label, meaning] = episodes.meanings[cause];
  const turn = episodes.table.turn[i];
  const text = turn ? `Cause: ${label}, in turn ${turn}.` : `Cause: ${label}.`;
  return [el("br"), el("b.cause", {}, text), " ", el("span", {}, meaning)];
}

// One column: the calls beside the oracle's and the conversation. If it is one of two,
// it has a title and says how the episode ended.
function track(episodes, details, clean, title) {
  const { i } = details;
  return el(
    "div.track",
    {},
    title && el("h4.whose", {}, outcomeMark(episodes, i), title),
    title && verdict(episodes, i),
    section("Calls, and the oracle's plan", () => planTable(details)),
    section("Conversation", () => conversation(episodes, details, clean)),
    details.more.tokens && section("Tokens", () => tokenView(details.more.tokens)),
  );
}

const NO_NEWS = new Set(["task", "phrasing", "tokens"]);

function fields(details) {
  const entries = Object.entries(details.more).filter(([key]) => !NO_NEWS.has(key));
  return el(
    "details",
    {},
    el("summary", {}, "Other fields"),
    el(
      "dl.fields",
      {},
      ...entries.flatMap(([key, value]) => [
        el("dt", {}, key),
        el("dd", {}, typeof value === "string" ? value : JSON.stringify(value)),
      ]),
    ),
  );
}

// All of the pane. `buttons` are what moves to other episodes.
function episodeView(episodes, { details, clean, other, otherClean, buttons }) {
  const { i } = details;
  const name = episodes.scenario(i);
  const glossary = episodes.glossary;
  const meaning = Object.hasOwn(glossary, name) ? glossary[name] : null;
  const titleOf = (x) => (episodes.scenario(x.i) === name ? episodes.run(x.i) : "clean task");
  return [
    el(
      "header.head",
      {},
      el(
        "h3",
        {},
        words(name),
        " ",
        el("small", {}, `#${episodes.table.index[i]}`),
        " ",
        episodes.runs.length > 1 && el("small", {}, episodes.run(i)),
      ),
      ...buttons,
    ),
    !other && verdict(episodes, i),
    meaning &&
      el(
        "div.meaning",
        {},
        meaning.summary && el("p", {}, meaning.summary.replaceAll("`", "")),
        meaning.right && el("p", {}, el("b", {}, "Right to do: "), meaning.right),
      ),
    section(name === "clean" ? "Request and tools" : "What changed", () =>
      changes(episodes, details, clean),
    ),
    el(
      `div.tracks${other ? ".two" : ""}`,
      {},
      track(episodes, details, clean, other && titleOf(details)),
      other && track(episodes, other, otherClean, titleOf(other)),
    ),
    section("Rest", () => fields(details), { class: "ev-part ev-rest" }),
  ];
}
