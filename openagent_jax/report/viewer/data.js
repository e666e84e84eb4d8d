// The data of the page: an index of all episodes, and chunks that are unpacked when one
// of their episodes is shown. All of it may be hostile: it becomes text, never markup.

const root = document.getElementById("episodes");
const FLAGS = { success: 1, solvable: 2, refused: 4, changed: 8, answered: 16 };
const FILTERS = ["scenario", "run", "outcome", "cause", "failure", "task"];
const REASONS = {
  unanswered: "no reply",
  out_of_context: "out of context",
  out_of_turns: "out of turns",
  false_refusal: "refused wrongly",
  missed_refusal: "did not refuse",
  wrong_answer: "wrong answer",
};

// Make an element. Strings among the children become text nodes.
function el(name, attributes = {}, ...children) {
  const [tag, ...classes] = name.split(".");
  const made = document.createElement(tag);
  if (classes.length) made.className = classes.map((x) => `ev-${x}`).join(" ");
  for (const [key, value] of Object.entries(attributes)) {
    if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value != null) made.setAttribute(key, value);
  }
  made.append(...children.flat().filter((child) => child != null && child !== false));
  return made;
}

const words = (name) => String(name).replaceAll("_", " ");
const many = (n, one) => `${n.toLocaleString("en")} ${one}${n === 1 ? "" : "s"}`;

async function unpack(name) {
  const part = root.querySelector(`script[data-part="${name}"]`);
  const bytes = Uint8Array.from(atob(part.textContent), (x) => x.charCodeAt(0));
  const stream = new Blob([bytes]).stream();
  return new Response(stream.pipeThrough(new DecompressionStream("gzip"))).json();
}

class Episodes {
  constructor(index) {
    Object.assign(this, index);
    this.size = this.table.run.length;
    this.chunks = new Map();
    this.isDeep = false;
    // What search looks at, in one string for each episode.
    this.texts = Array.from({ length: this.size }, (_, i) => {
      const { request, said, index } = this.table;
      const hopeless = words(this.reasons[this.table.unsolvable[i]]);
      const reason = `${this.verdict(i)}\n${this.causeText(i)}\n${hopeless}`;
      return `${request[i]}\n${said[i]}\n${this.scenario(i)}\n${reason}\n#${index[i]}`.toLowerCase();
    });
    // The episodes of a task in a scenario, of all runs.
    this.byTask = new Map();
    for (let i = 0; i < this.size; i++) {
      const key = this.taskIn(i, this.table.scenario[i]);
      if (!this.byTask.has(key)) this.byTask.set(key, []);
      this.byTask.get(key).push(i);
    }
  }

  taskIn(i, scenario) {
    return `${scenario}/${this.table.task[i]}`;
  }

  is(i, flag) {
    return (this.table.flags[i] & FLAGS[flag]) !== 0;
  }

  scenario(i) {
    return this.scenarios[this.table.scenario[i]];
  }

  run(i) {
    return this.runs[this.table.run[i]].name;
  }

  failure(i) {
    return this.failures[this.table.failure[i]];
  }

  cause(i) {
    return this.causes[this.table.cause[i]];
  }

  // Why the episode failed, in a few words; "" if it did not.
  causeText(i) {
    return this.cause(i) && this.meanings[this.cause(i)][0];
  }

  // How the episode ended, in a few words.
  verdict(i) {
    if (this.is(i, "success")) return this.is(i, "refused") ? "refused rightly" : "solved";
    const reason = this.failure(i);
    return Object.hasOwn(REASONS, reason) ? REASONS[reason] : words(reason) || "failed";
  }

  // What a filter sees of an episode: the options that it belongs to.
  options(i, filter) {
    switch (filter) {
      case "scenario":
        return [this.scenario(i)];
      case "outcome":
        return [this.is(i, "success") ? "success" : "failure"];
      case "failure":
        return [this.failure(i)];
      case "cause":
        return [this.cause(i)];
      case "task":
        return [this.is(i, "solvable") ? "solvable" : "unsolvable"];
      case "run": {
        const { name, column } = this.runs[this.table.run[i]];
        return name === column ? [name] : [name, column];
      }
    }
  }

  // The episodes that pass the filters, and how many each option would leave.
  select(chosen) {
    const found = [];
    const counts = Object.fromEntries(FILTERS.map((filter) => [filter, new Map()]));
    const query = (chosen.q ?? "").toLowerCase().split(/\s+/).filter(Boolean);
    for (let i = 0; i < this.size; i++) {
      if (!query.every((word) => this.texts[i].includes(word))) continue;
      const failed = FILTERS.filter(
        (filter) => chosen[filter] && !this.options(i, filter).includes(chosen[filter]),
      );
      if (failed.length === 0) found.push(i);
      if (failed.length > 1) continue;
      for (const filter of failed.length ? failed : FILTERS)
        for (const option of this.options(i, filter))
          counts[filter].set(option, (counts[filter].get(option) ?? 0) + 1);
    }
    return { found, counts };
  }

  chunk(name) {
    if (!this.chunks.has(name)) this.chunks.set(name, unpack(name));
    return this.chunks.get(name);
  }

  async details(i) {
    const { chunk, place } = this.table;
    const { shared, episodes } = await this.chunk(chunk[i]);
    const { rewards, more, ...numbers } = episodes[place[i]];
    const [tools, messages, plan] = ["tools", "messages", "plan"].map((key) =>
      numbers[key].map((number) => shared[number]),
    );
    return { i, tools, messages, plan, rewards, more };
  }

  // Let search look at whole conversations. Each message is read once for all episodes.
  async deepen() {
    const members = new Map();
    this.table.chunk.forEach((name, i) => members.set(name, [...(members.get(name) ?? []), i]));
    for (const [name, found] of members) {
      const { shared, episodes } = await this.chunk(name);
      const texts = new Map();
      const textOf = (number) => {
        if (!texts.has(number)) {
          const message = shared[number];
          const calls = actionsOf([message])
            .filter(isCall)
            .map((x) => JSON.stringify(x));
          texts.set(number, [contentOf(message), ...calls].join("\n").toLowerCase());
        }
        return texts.get(number);
      };
      for (const i of found)
        this.texts[i] += `\n${episodes[this.table.place[i]].messages.map(textOf).join("\n")}`;
    }
    this.isDeep = true;
  }

  // The episode of the same task in the same run, without perturbation.
  clean(i) {
    const scenario = this.scenarios.indexOf("clean");
    if (scenario < 0 || this.table.scenario[i] === scenario) return null;
    const same = this.byTask.get(this.taskIn(i, scenario)) ?? [];
    return this.nearest(
      i,
      same.filter((j) => this.table.run[j] === this.table.run[i]),
    );
  }

  // The episodes of the same task in the same scenario, one of each other run. Worlds
  // that differ have equal keys, but other requests.
  rivals(i) {
    const { run, scenario, request } = this.table;
    const others = new Map();
    for (const j of this.byTask.get(this.taskIn(i, scenario[i])))
      if (run[j] !== run[i] && request[j] === request[i])
        others.set(run[j], [...(others.get(run[j]) ?? []), j]);
    return [...others.values()].map((found) => this.nearest(i, found));
  }

  // A task may be played several times: the episode with the same index, or any.
  nearest(i, found) {
    return found.find((j) => this.table.index[j] === this.table.index[i]) ?? found[0] ?? null;
  }

  find(scenario, index, run) {
    const s = this.scenarios.indexOf(scenario);
    for (let i = 0; i < this.size; i++)
      if (this.table.scenario[i] === s && this.table.index[i] === index && this.run(i) === run)
        return i;
    return null;
  }
}

// The address of what is shown, for links into the page and out of it.

function readAddress(hash) {
  const decoded = (text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  };
  const found = {};
  for (const part of hash.replace(/^#/, "").split("&")) {
    const [, key, value] = part.match(/^([a-z]+)=(.*)$/s) ?? [];
    if (key === "episode") {
      const [scenario, index, ...run] = value.split("/").map(decoded);
      found.episode = [scenario, Number(index), run.join("/")];
    } else if (["q", "beside", ...FILTERS].includes(key)) found[key] = decoded(value);
  }
  return found;
}

function writeAddress({ episode, ...filters }) {
  // Half a character, as in a search that is being typed, has no encoding.
  const encoded = (text) => encodeURIComponent(text.replace(/\p{Surrogate}/gu, "?"));
  const parts = episode ? [`episode=${episode.map(encoded).join("/")}`] : [];
  for (const [key, value] of Object.entries(filters))
    if (value) parts.push(`${key}=${encoded(value)}`);
  return `#${parts.join("&") || "episodes"}`;
}
