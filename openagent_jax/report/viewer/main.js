// The page: what is chosen, what is shown, and the address that says so.

const find = (name) => root.querySelector(`.ev-${name}`);
const input = find("search").querySelector("input");
const [box, pane, status, deepen, clear] = ["list", "detail", "count", "deepen", "clear"].map(
  find,
);
const selects = Object.fromEntries(
  FILTERS.map((filter) => [filter, root.querySelector(`[data-filter=${filter}] select`)]),
);
const LABELS = {
  "": "Any",
  success: "Success",
  failure: "Failure",
  solvable: "Can be solved",
  unsolvable: "Cannot be solved",
};

let episodes;
let list;
const chosen = { episode: null, beside: "", filters: {} };
let shown = 0; // counts what was asked for, so that late answers are dropped

// As the style sheet has it: either the list or an episode.
const isNarrow = () => root.clientWidth < 720;

function row(i) {
  const { table } = episodes;
  const run = episodes.runs.length > 1 ? ` ${episodes.run(i)}` : "";
  return [
    outcomeMark(episodes, i),
    el("span.name", {}, words(episodes.scenario(i))),
    el(
      `span.why.${episodes.is(i, "success") ? "good" : "bad"}`,
      {},
      episodes.causeText(i) || episodes.verdict(i),
    ),
    el(
      "span.task",
      {},
      el("span.number", {}, `#${table.index[i]}${run}`),
      " ",
      table.request[i],
    ),
  ];
}

function optionsOf(filter) {
  switch (filter) {
    case "scenario":
      return episodes.scenarios;
    case "failure":
      return episodes.failures.filter(Boolean);
    case "cause":
      return episodes.causes.filter(Boolean);
    case "outcome":
      return ["success", "failure"];
    case "task":
      return ["solvable", "unsolvable"];
    case "run":
      return [...new Set(episodes.runs.flatMap(({ name, column }) => [column, name]))];
  }
}

function labelOf(filter, option) {
  if (filter === "cause" && Object.hasOwn(episodes.meanings, option))
    return episodes.meanings[option][0];
  if (filter === "failure" && Object.hasOwn(REASONS, option)) return REASONS[option];
  if (Object.hasOwn(LABELS, option) && filter !== "run" && filter !== "scenario")
    return LABELS[option];
  return filter === "run" ? option : words(option);
}

function drawFilters(counts) {
  for (const filter of FILTERS) {
    const options = [...optionsOf(filter)];
    const value = chosen.filters[filter] ?? "";
    // A link may name what is not here: it is shown, and leaves nothing.
    if (value && !options.includes(value)) options.push(value);
    selects[filter].replaceChildren(
      el("option", { value: "" }, "Any"),
      ...options.map((option) =>
        el(
          "option",
          { value: option },
          `${labelOf(filter, option)} (${(counts[filter].get(option) ?? 0).toLocaleString("en")})`,
        ),
      ),
    );
    selects[filter].value = value;
    selects[filter].parentElement.hidden = options.length < 2 && !value;
  }
}

function applyFilters() {
  const { found, counts } = episodes.select(chosen.filters);
  drawFilters(counts);
  list.show(found, chosen.episode);
  const all = many(episodes.size, "episode");
  status.textContent =
    found.length === episodes.size ? all : `${found.length.toLocaleString("en")} of ${all}`;
  deepen.hidden = episodes.isDeep || !chosen.filters.q;
  clear.hidden = !Object.values(chosen.filters).some(Boolean);
}

function setFilter(filter, value) {
  chosen.filters[filter] = value;
  applyFilters();
  keepAddress();
}

function keepAddress() {
  const { episode: i, beside, filters } = chosen;
  const episode =
    i === null
      ? null
      : [episodes.scenario(i), String(episodes.table.index[i]), episodes.run(i)];
  history.replaceState(
    null,
    "",
    writeAddress({ episode, beside: i === null ? "" : beside, ...filters }),
  );
}

function besides(i) {
  const clean = episodes.clean(i);
  const made = episodes.rivals(i).map((j) => ({ name: episodes.run(j), j }));
  return clean === null ? made : [{ name: "clean", j: clean, label: "clean task" }, ...made];
}

function buttons(i) {
  const others = besides(i);
  return [
    el(
      "nav.moves",
      { "aria-label": "Episodes" },
      el("button.back", { type: "button", onclick: close }, "← All episodes"),
      el(
        "button",
        { type: "button", "aria-label": "Previous episode", onclick: () => list.step(-1) },
        "↑",
      ),
      el(
        "button",
        { type: "button", "aria-label": "Next episode", onclick: () => list.step(1) },
        "↓",
      ),
    ),
    others.length > 0 &&
      el(
        "div.beside",
        { role: "group", "aria-label": "Compare with" },
        el("span.label", {}, "Compare with"),
        ...others.map(({ name, label, j }) =>
          el(
            "button",
            {
              type: "button",
              "aria-pressed": String(chosen.beside === name),
              onclick: () => open(i, chosen.beside === name ? "" : name),
            },
            outcomeMark(episodes, j),
            label ?? name,
            el("span.sr", {}, `, ${episodes.verdict(j)}`),
          ),
        ),
      ),
  ];
}

async function open(i, beside = chosen.beside) {
  const ticket = ++shown;
  Object.assign(chosen, { episode: i, beside });
  root.classList.add("ev-open");
  pane.ariaBusy = "true";
  keepAddress();
  const other = besides(i).find(({ name }) => name === beside)?.j ?? null;
  const load = (j) => (j === null ? null : episodes.details(j));
  try {
    const [details, clean, second, secondClean] = await Promise.all(
      [i, episodes.clean(i), other, other === null ? null : episodes.clean(other)].map(load),
    );
    if (ticket !== shown) return;
    pane.replaceChildren(
      ...episodeView(episodes, {
        details,
        clean,
        other: second,
        otherClean: secondClean,
        buttons: buttons(i),
      })
        .flat()
        .filter(Boolean),
    );
  } catch (error) {
    if (ticket === shown)
      pane.replaceChildren(
        el("p.hint", {}, `This episode cannot be unpacked (${error.message}).`),
      );
  }
  if (ticket !== shown) return;
  pane.ariaBusy = "false";
  pane.scrollTop = 0;
  if (isNarrow()) root.scrollIntoView();
}

function close() {
  shown++;
  chosen.episode = null;
  root.classList.remove("ev-open");
  keepAddress();
  list.mark(null);
  box.focus({ preventScroll: true });
}

function follow(hash) {
  const { episode, beside = "", ...filters } = readAddress(hash);
  if (!episode && !Object.keys(filters).length) return;
  chosen.filters = filters;
  input.value = filters.q ?? "";
  chosen.beside = beside;
  const i = episode ? episodes.find(...episode) : null;
  chosen.episode = i;
  if (i === null) root.classList.remove("ev-open"); // a hidden list cannot scroll
  applyFilters();
  if (i !== null) open(i);
  else if (list.items.length && !isNarrow()) list.move(0);
  if (episode && i === null)
    status.textContent = `${episode[0]} #${episode[1]} of ${episode[2]} is not here; ${status.textContent}`;
  root.scrollIntoView();
}

function keys() {
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const inField = event.target.closest?.("input, textarea, select, [contenteditable]");
    if (event.key === "/" && !inField) {
      event.preventDefault();
      input.focus();
      input.select();
      root.scrollIntoView({ block: "nearest" });
    } else if (root.contains(event.target) && !inField) {
      if (event.key === "j") list.step(1);
      else if (event.key === "k") list.step(-1);
      else if (event.key === "Escape") {
        if (isNarrow()) close();
        else box.focus();
      }
    }
  });
  input.addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      box.focus();
      list.step(list.current < 0 ? 0 : event.key === "Enter" ? 0 : 1);
    } else if (event.key === "Escape" && !input.value) box.focus();
  });
  box.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && chosen.episode !== null) pane.focus();
  });
}

async function start() {
  try {
    episodes = new Episodes(await unpack("index"));
  } catch (error) {
    status.textContent =
      typeof DecompressionStream === "undefined"
        ? "This browser is too old to unpack the episodes."
        : `The episodes cannot be unpacked (${error.message}).`;
    return;
  }
  list = new List(box, { height: 56, fill: row, choose: (i) => open(i) });
  input.addEventListener("input", () => setFilter("q", input.value));
  for (const filter of FILTERS)
    selects[filter].addEventListener("change", () => setFilter(filter, selects[filter].value));
  deepen.addEventListener("click", async () => {
    status.textContent = "Reading all conversations …";
    await episodes.deepen();
    applyFilters();
    input.focus();
  });
  clear.addEventListener("click", () => {
    chosen.filters = {};
    input.value = "";
    applyFilters();
    keepAddress();
    input.focus();
  });
  if (episodes.notes.length) {
    const notes = find("notes");
    notes.hidden = false;
    notes.querySelector("summary").textContent =
      `${many(episodes.notes.length, "note")} on damaged or missing files`;
    notes
      .querySelector("ul")
      .replaceChildren(...episodes.notes.map((note) => el("li", {}, note)));
  }
  keys();
  applyFilters();
  if (!episodes.size) find("panes").hidden = true;
  window.addEventListener("hashchange", () => follow(location.hash));
  document.addEventListener("click", (event) => {
    // a link to where we are: no hashchange
    const hash = event.target.closest?.("a[href^='#']")?.getAttribute("href");
    if (hash && hash === location.hash) follow(hash);
  });
  follow(location.hash);
  root.dataset.ready = "";
  performance.mark("episodes-ready");
}

start();
