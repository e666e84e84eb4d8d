// A list that keeps only the visible rows in the page, so that it may be of any length.

class List {
  constructor(box, { height, fill, choose }) {
    this.box = box;
    this.height = height;
    this.fill = fill; // (item) -> children of a row
    this.choose = choose; // called with the item that a person moves to
    this.items = [];
    this.current = -1;
    this.canvas = el("div.canvas", { role: "presentation" });
    box.replaceChildren(this.canvas);
    box.addEventListener("scroll", () => this.draw(), { passive: true });
    box.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(box);
  }

  show(items, item) {
    this.items = items;
    this.current = items.indexOf(item);
    this.canvas.style.height = `${items.length * this.height}px`;
    if (this.current >= 0) this.reveal(this.box.clientHeight / 3);
    else this.box.scrollTop = 0;
    this.draw();
  }

  // Mark an item without calling `choose`.
  mark(item) {
    this.current = this.items.indexOf(item);
    if (this.current >= 0) this.reveal();
    this.draw();
  }

  move(position) {
    if (!this.items.length) return;
    this.current = Math.min(Math.max(position, 0), this.items.length - 1);
    this.reveal();
    this.draw();
    this.choose(this.items[this.current]);
  }

  step(by) {
    this.move(this.current < 0 ? 0 : this.current + by);
  }

  // Scroll to the current row if it cannot be seen, leaving `around` on either side.
  reveal(around = 0) {
    const [top, room] = [this.current * this.height, this.box.clientHeight];
    if (top < this.box.scrollTop) this.box.scrollTop = top - around;
    else if (top + this.height > this.box.scrollTop + room)
      this.box.scrollTop = top + this.height - room + around;
  }

  draw() {
    const { scrollTop, clientHeight } = this.box;
    const first = Math.max(0, Math.floor(scrollTop / this.height) - 4);
    const last = Math.min(
      this.items.length,
      Math.ceil((scrollTop + clientHeight) / this.height) + 4,
    );
    const rows = [];
    for (let k = first; k < last; k++) {
      const row = el(
        "div.row",
        {
          role: "option",
          id: `ev-row-${k}`,
          "aria-posinset": k + 1,
          "aria-setsize": this.items.length,
          "aria-selected": String(k === this.current),
          onclick: () => {
            this.box.focus({ preventScroll: true });
            this.move(k);
          },
        },
        this.fill(this.items[k]),
      );
      row.style.transform = `translateY(${k * this.height}px)`;
      rows.push(row);
    }
    this.canvas.replaceChildren(...rows);
    const visible = this.current >= first && this.current < last;
    if (visible) this.box.setAttribute("aria-activedescendant", `ev-row-${this.current}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const page = Math.max(1, Math.floor(this.box.clientHeight / this.height) - 1);
    const moves = {
      ArrowDown: () => this.step(1),
      ArrowUp: () => this.step(-1),
      PageDown: () => this.step(page),
      PageUp: () => this.step(-page),
      Home: () => this.move(0),
      End: () => this.move(this.items.length - 1),
    };
    if (!Object.hasOwn(moves, event.key)) return;
    event.preventDefault();
    moves[event.key]();
  }
}
