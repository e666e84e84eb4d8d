// Details open when a link leads to them or into them, and all of them when printed.
(() => {
  const all = [...document.querySelectorAll(".cards details")];
  const button = document.querySelector("[data-open]");
  const open = () => {
    let id = location.hash.slice(1);
    try {
      id = decodeURIComponent(id);
    } catch {
      // not one of our ids
    }
    const target = id && document.getElementById(id);
    const box = target && target.closest(".cards details");
    if (!box || box.open) return;
    box.open = true;
    target.scrollIntoView();
  };
  const set = (state) => all.forEach((box) => (box.open = state));
  button.addEventListener("click", () => {
    const opened = all.some((box) => !box.open);
    set(opened);
    const next = button.dataset.open;
    button.dataset.open = button.textContent;
    button.textContent = next;
  });
  let before = null;
  window.addEventListener("beforeprint", () => {
    before ??= all.filter((box) => !box.open);
    set(true);
  });
  window.addEventListener("afterprint", () => {
    before?.forEach((box) => (box.open = false));
    before = null;
  });
  window.addEventListener("hashchange", open);
  document.addEventListener("click", (event) => {
    // a link to where we are: no hashchange
    const hash = event.target.closest?.("a[href^='#']")?.hash;
    if (hash && hash === location.hash) open();
  });
  open();
})();
