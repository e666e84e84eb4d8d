// An episode as a conversation, and its calls beside the oracle's.

// What `rewards` says of a turn: components that are good to have, and the others.
const GOOD = new Set(["outcome", "progress", "refusal"]);
const SILENT = new Set(["step"]); // paid in every turn

function valueText(value) {
  return typeof value === "string" ? JSON.stringify(value) : (JSON.stringify(value) ?? "null");
}

function callElement(action) {
  if (!isCall(action)) return el("span.said", {}, action.text || "(nothing)");
  let given = action.arguments;
  if (typeof given === "string") {
    try {
      given = JSON.parse(given);
    } catch {
      /* a call that the agent wrote badly: shown as it is */
    }
  }
  const inner =
    given && typeof given === "object" && !Array.isArray(given)
      ? Object.entries(given).flatMap(([key, value], k) => [
          k ? ", " : "",
          el("span.key", {}, key),
          ": ",
          valueText(value),
        ])
      : [String(given ?? "")];
  return el("code.call", {}, el("b", {}, action.name), "(", el("wbr"), ...inner, ")");
}

function isError(text) {
  try {
    const found = JSON.parse(text);
    return found !== null && typeof found === "object" && Object.hasOwn(found, "error");
  } catch {
    return false;
  }
}

const contentOf = (message) =>
  typeof message.content === "string" ? message.content : JSON.stringify(message.content ?? "");

// Each call of an episode with its result, which follows it.
function exchanges(messages) {
  const made = [];
  for (const message of messages) {
    if (message.role === "assistant")
      for (const [k, action] of actionsOf([message]).entries())
        made.push({ id: message.tool_calls?.[k]?.id, action, result: null });
    else if (message.role === "tool") {
      const open = made.filter((x) => x.result === null && isCall(x.action));
      const call = open.find((x) => x.id === message.tool_call_id) ?? open[0];
      if (call) call.result = contentOf(message);
    }
  }
  return made;
}

// What the same calls gave on the clean task: a function from a call to a result, or to
// undefined if the clean episode has no such call. Names are those of the clean task.
function cleanResults(details, clean) {
  if (!clean) return () => undefined;
  const keyOf = ({ name, arguments: given }) => `${name}\n${canonical(given)}`;
  const results = new Map();
  for (const { action, result } of exchanges(clean.messages)) {
    if (!isCall(action) || result === null) continue;
    const key = keyOf(action);
    if (!results.has(key)) results.set(key, []);
    results.get(key).push(result);
  }
  const names = new Map(
    pairTools(clean.tools, details.tools)
      .filter(([before, after]) => before && after)
      .map(([before, after]) => [after.name, { before, after }]),
  );
  return (action) => {
    const pair = names.get(action.name);
    if (!pair || typeof action.arguments !== "object" || !action.arguments) return undefined;
    const { before, after } = pair;
    const renamed = new Map(
      before.parameters.length === after.parameters.length
        ? after.parameters.map((name, k) => [
            name,
            before.parameters.includes(name) ? name : before.parameters[k],
          ])
        : [],
    );
    const given = Object.fromEntries(
      Object.entries(action.arguments).map(([key, value]) => [renamed.get(key) ?? key, value]),
    );
    const found = results.get(keyOf({ name: before.name, arguments: given }));
    return found?.length > 1 ? found.shift() : found?.[0];
  };
}

function rewardChips(rewards, turn) {
  return Object.entries(rewards ?? {}).flatMap(([name, paid]) => {
    const value = Array.isArray(paid) ? paid[turn] : 0;
    if (!value || SILENT.has(name)) return [];
    const amount = value === 1 ? "" : ` ${Number(value.toFixed?.(2) ?? value)}`;
    return [el(`span.chip.${GOOD.has(name) ? "good" : "bad"}`, {}, `${words(name)}${amount}`)];
  });
}

const tag = (text, kind) => el(`span.tag.${kind}`, {}, text);

function said(who, ...children) {
  return el("div.line", {}, el("span.who", {}, who), el("div.what", {}, ...children));
}

// The messages of an episode, by turns. `changed` says whether the request differs.
function conversation(episodes, details, clean) {
  const inClean = cleanResults(details, clean);
  const first = (x) => x.messages.find((message) => message.role === "user");
  const reworded = clean && first(details)?.content !== first(clean)?.content;
  const results = new Map(); // of messages: what the same call gave on the clean task
  const calls = exchanges(details.messages).filter((x) => isCall(x.action));
  const opening = [];
  const turns = [];
  let here = opening;
  let next = 0; // call
  for (const message of details.messages) {
    const text = contentOf(message);
    if (message.role === "system") {
      here.push(
        said(
          "System",
          el(
            "details",
            {},
            el("summary", {}, `${text.slice(0, 60)}${text.length > 60 ? " …" : ""}`),
            el("p.text", {}, text),
          ),
        ),
      );
    } else if (message.role === "assistant") {
      here = [];
      const actions = actionsOf([message]);
      const known = new Set(details.tools.map((tool) => tool?.function?.name));
      here.push(
        said(
          "Agent",
          actions.some(isCall) && text ? el("p.text", {}, text) : null,
          ...actions.map((action) =>
            el(
              "div",
              {},
              callElement(action),
              isCall(action) && !known.has(action.name) && tag("not in the list", "note"),
            ),
          ),
        ),
      );
      for (const action of actions.filter(isCall)) results.set(next++, inClean(action));
      turns.push(here);
    } else if (message.role === "tool") {
      const k = calls.findIndex((x) => x.result === text && !x.shown);
      const call = calls[k];
      if (call) call.shown = true;
      const before = results.get(k);
      const differs = before !== undefined && before !== text;
      here.push(
        said(
          "Tool",
          el(`pre.result${differs ? ".changed" : ""}`, {}, text),
          isError(text) && tag("error", "error"),
          differs && tag("changed", "changed"),
          differs && el("p.before", {}, "clean task: ", el("code", {}, before)),
        ),
      );
    } else {
      const request = message === first(details);
      here.push(
        said(
          "User",
          el(`p.text${request && reworded ? ".changed" : ""}`, {}, text),
          isError(text) && tag("error", "error"),
          request && reworded && tag("changed", "changed"),
        ),
      );
    }
  }
  const { i } = details;
  return el(
    "div.talk",
    {},
    el("div.opening", {}, ...opening),
    el(
      "ol.turns",
      {},
      ...turns.map((lines, turn) =>
        el(
          "li",
          {},
          el("div.number", {}, `${turn + 1}`),
          el("div.lines", {}, ...lines),
          el("div.chips", {}, ...rewardChips(details.rewards, turn)),
        ),
      ),
    ),
    el(
      `p.end.${episodes.is(i, "success") ? "good" : "bad"}`,
      {},
      `End: ${episodes.verdict(i)}`,
    ),
  );
}

// The agent's calls and replies beside those of the oracle.
function planTable(details) {
  if (!details.plan.length) return el("p.soft", {}, "No plan of the oracle was kept.");
  const rows = align(actionsOf(details.messages), details.plan, likeness);
  const kinds = {
    same: ["=", "the same"],
    other: ["≠", "differs"],
    extra: ["+", "only the agent"],
    missing: ["−", "only the oracle"],
  };
  const kindOf = (a, b) => {
    if (b === null) return "extra";
    if (a === null) return "missing";
    return likeness(a, b) === 1 ? "same" : "other";
  };
  return el(
    "table.plan",
    {},
    el(
      "thead",
      {},
      el(
        "tr",
        {},
        el("th", { scope: "col" }, "Agent"),
        el("th", {}, ""),
        el("th", { scope: "col" }, "Oracle"),
      ),
    ),
    el(
      "tbody",
      {},
      ...rows.map(([a, b]) => {
        const kind = kindOf(a, b);
        const [sign, title] = kinds[kind];
        return el(
          `tr.${kind}`,
          {},
          el("td", {}, a && callElement(a)),
          el(
            "td.sign",
            { title },
            el("span", { "aria-hidden": "true" }, sign),
            el("span.sr", {}, title),
          ),
          el("td", {}, b && callElement(b)),
        );
      }),
    ),
  );
}
