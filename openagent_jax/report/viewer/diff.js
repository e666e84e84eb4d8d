// Differences between two texts, two lists of tools, and two lists of calls.

const MOST = 1_000_000; // cells of a table; longer texts count as wholly different

// Pair the items of two lists in order, so that the pairs weigh the most. `weight` is 0
// for items that cannot be a pair. Return rows [a, b]; null stands for no item.
function align(left, right, weight) {
  const [n, m] = [left.length, right.length];
  if (n * m > MOST) return [...left.map((x) => [x, null]), ...right.map((x) => [null, x])];
  const best = Array.from({ length: n + 1 }, () => new Float64Array(m + 1));
  for (let i = n - 1; i >= 0; i--)
    for (let j = m - 1; j >= 0; j--) {
      const w = weight(left[i], right[j]);
      const pair = w > 0 ? w + best[i + 1][j + 1] : 0;
      best[i][j] = Math.max(pair, best[i + 1][j], best[i][j + 1]);
    }
  const rows = [];
  for (let i = 0, j = 0; i < n || j < m;) {
    if (i < n && j < m) {
      const w = weight(left[i], right[j]);
      if (w > 0 && best[i][j] === w + best[i + 1][j + 1]) {
        rows.push([left[i++], right[j++]]);
        continue;
      }
    }
    if (j >= m || (i < n && best[i][j] === best[i + 1][j])) rows.push([left[i++], null]);
    else rows.push([null, right[j++]]);
  }
  return rows;
}

// The differences of two texts by words: parts [kind, text], kind "=", "-" or "+".
function wordDiff(before, after) {
  if (before === after) return [["=", after]];
  const split = (text) => text.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
  const equal = (a, b) => (a === b ? (a.trim() ? 1 + a.length / 100 : 0.5) : 0);
  const rows = align(split(before), split(after), equal);
  const kept = rows.reduce(
    (sum, [a, b]) => sum + (a !== null && b !== null ? a.trim().length : 0),
    0,
  );
  if (kept < 0.3 * Math.max(before.length, after.length))
    return [
      ["-", before],
      ["+", after],
    ].filter(([, text]) => text);
  // Removed words stand before added ones, and a blank between changes belongs to them.
  const parts = [];
  let [removed, added] = ["", ""];
  const flush = () => {
    if (removed) parts.push(["-", removed]);
    if (added) parts.push(["+", added]);
    removed = added = "";
  };
  rows.forEach(([a, b], row) => {
    const same = a !== null && b !== null;
    const next = rows[row + 1];
    const between =
      same && !a.trim() && (removed || added) && next && (next[0] === null || next[1] === null);
    if (same && !between) {
      flush();
      if (parts.at(-1)?.[0] === "=") parts.at(-1)[1] += a;
      else parts.push(["=", a]);
    } else {
      removed += a ?? "";
      added += b ?? "";
    }
  });
  flush();
  return parts;
}

function diffed(before, after) {
  const tags = { "=": "span", "-": "del", "+": "ins" };
  const parts = wordDiff(before, after);
  const whole =
    parts.length === 2 && parts.every(([kind, text]) => kind !== "=" && text.length > 30);
  return parts.map(([kind, text]) => el(`${tags[kind]}${whole ? ".whole" : ""}`, {}, text));
}

// A tool in OpenAI's function format, as a signature and a description.
function described(tool) {
  const made = tool?.function ?? tool ?? {};
  const schema = made.parameters ?? {};
  const required = Array.isArray(schema.required) ? schema.required : [];
  const parameters = Object.entries(schema.properties ?? {}).map(([name, value]) => {
    const { type, description, ...rest } = value ?? {};
    const more = Object.keys(rest).length ? ` ${JSON.stringify(rest)}` : "";
    const optional = required.includes(name) ? "" : "?";
    return {
      name,
      text: `${name}${optional}: ${typeof type === "string" ? type : JSON.stringify(type ?? "any")}${more}`,
      note: typeof description === "string" ? description : "",
    };
  });
  return {
    name: String(made.name ?? "?"),
    signature: `${made.name ?? "?"}(${parameters.map((x) => x.text).join(", ")})`,
    description: typeof made.description === "string" ? made.description : "",
    notes: parameters
      .filter((x) => x.note)
      .map((x) => `${x.name}: ${x.note}`)
      .join("\n"),
    parameters: parameters.map((x) => x.name),
    types: parameters.map((x) => x.text.slice(x.name.length)).join(),
  };
}

// Pair the tools of the clean task with the perturbed ones: by name, by description, by
// the words of these, and by place if as many are left, of the same types, on both sides.
function pairTools(before, after) {
  const left = before.map(described);
  const right = after.map(described);
  const pairs = new Map(); // from right to left
  const match = (same) => {
    for (const [r, b] of right.entries()) {
      if (pairs.has(r)) continue;
      const taken = new Set(pairs.values());
      const l = left.findIndex((a, l) => !taken.has(l) && same(a, b));
      if (l >= 0) pairs.set(r, l);
    }
  };
  const vocabulary = (x) =>
    new Set(`${x.description} ${x.parameters.join(" ")}`.toLowerCase().match(/\p{L}+/gu) ?? []);
  const similar = (a, b) => {
    const [one, two] = [vocabulary(a), vocabulary(b)];
    const both = [...one].filter((x) => two.has(x)).length;
    return both / Math.max(1, one.size + two.size - both);
  };
  match((a, b) => a.signature === b.signature && a.description === b.description);
  match((a, b) => a.name === b.name);
  match((a, b) => a.description === b.description && a.description);
  match((a, b) => similar(a, b) > 0.5);
  const used = new Set(pairs.values());
  const restLeft = [...left.keys()].filter((l) => !used.has(l));
  const restRight = [...right.keys()].filter((r) => !pairs.has(r));
  if (
    restLeft.map((l) => left[l].types).join("\n") ===
    restRight.map((r) => right[r].types).join("\n")
  )
    restRight.forEach((r, k) => pairs.set(r, restLeft[k]));
  const paired = new Set(pairs.values());
  return [
    ...right.map((tool, r) => [pairs.has(r) ? left[pairs.get(r)] : null, tool]),
    ...left.filter((_, l) => !paired.has(l)).map((tool) => [tool, null]),
  ];
}

// Calls and replies, as the conversation and the oracle's plan have them.

function actionsOf(messages) {
  return messages
    .filter((x) => x.role === "assistant")
    .flatMap((message) => {
      const calls = Array.isArray(message.tool_calls) ? message.tool_calls : [];
      if (!calls.length) return [{ text: String(message.content ?? "") }];
      return calls.map((call) => ({
        name: String(call?.function?.name ?? "?"),
        arguments: call?.function?.arguments ?? {},
      }));
    });
}

// Arguments as one text, whatever their order and whether numbers are quoted.
function canonical(given) {
  if (typeof given === "string") {
    try {
      given = JSON.parse(given);
    } catch {
      return given;
    }
  }
  const entries = Object.entries(given ?? {}).map(([key, value]) =>
    JSON.stringify([key, typeof value === "object" ? value : String(value)]),
  );
  return entries.sort().join();
}

const isCall = (action) => action != null && action.name !== undefined;
const sameCall = (a, b) =>
  a.name === b.name && canonical(a.arguments) === canonical(b.arguments);

function likeness(a, b) {
  if (isCall(a) !== isCall(b)) return 0;
  if (!isCall(a)) return a.text === b.text ? 1 : 0.4;
  if (a.name !== b.name) return 0;
  return canonical(a.arguments) === canonical(b.arguments) ? 1 : 0.5;
}
