// What is wrong with a page for somebody who listens to it, or does not see well: a list of sentences.
() => {
  const wrong = [];
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const told = (each) => `<${each.tagName.toLowerCase()}> ${(each.id || each.className.baseVal || each.className || each.textContent).toString().trim().slice(0, 60)}`;
  const isShown = (each) => each.checkVisibility({ visibilityProperty: true, opacityProperty: true });
  const words = (each) => (each.getAttribute("aria-label") || each.textContent.trim() || all("img", each).map((img) => img.alt).join("") || "").trim();

  // Landmarks and headings.
  if (!document.documentElement.lang) wrong.push("the page has no language");
  if (!document.title.trim()) wrong.push("the page has no title");
  for (const [selector, name] of [["main", "main"], ["h1", "h1"]])
    if (all(selector).length !== 1) wrong.push(`${all(selector).length} of ${name}`);
  if (all("nav").some((each) => !each.getAttribute("aria-label"))) wrong.push("a nav without a name");
  if (all("body > :not(.skip, [role=status])").some((each) => each.id !== "page")) wrong.push("content outside of the landmarks");
  let level = 0;
  for (const each of all("h1, h2, h3, h4")) {
    const next = Number(each.tagName[1]);
    if (next > level + 1) wrong.push(`h${next} after h${level}: ${told(each)}`);
    level = next;
  }
  if (all("[role=status]").length !== 1) wrong.push("no place where something is said");

  // Names.
  for (const each of all("a[href], button, summary"))
    if (!words(each) && !all("title", each).length) wrong.push(`nobody knows what this does: ${told(each)}`);
  for (const each of all("input:not([type=hidden]), select, textarea"))
    if (!each.labels.length && !each.getAttribute("aria-label")) wrong.push(`nobody knows what to write here: ${told(each)}`);
  for (const each of all("img")) if (!each.hasAttribute("alt")) wrong.push(`a picture without words: ${told(each)}`);
  for (const each of all("svg:not([aria-hidden=true])"))
    if (each.getAttribute("role") !== "img" || !each.querySelector("title")) wrong.push(`a drawing without words: ${told(each)}`);
  for (const each of all("progress")) if (!each.getAttribute("aria-label")) wrong.push(`a progress of nothing: ${told(each)}`);
  for (const each of all("table")) {
    if (all("thead th", each).some((th) => !th.textContent.trim() && !all("[aria-label]", th).length)) wrong.push(`a column without a name: ${told(each)}`);
  }

  // Ids, order, parts that must be inside others.
  const ids = all("[id]").map((each) => each.id);
  for (const id of new Set(ids.filter((each, at) => ids.indexOf(each) !== at))) wrong.push(`the id ${id} twice`);
  if (all("[tabindex]").some((each) => each.tabIndex > 0)) wrong.push("an order of its own for the keyboard");
  for (const each of all("ul > :not(li), ol > :not(li), dl > :not(div, dt, dd), a a, a button, button a, button button")) wrong.push(`misplaced: ${told(each)}`);

  // Contrast of every text that is seen, on the ground that is really behind it.
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((each) => (each /= 255) <= 0.04045 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const ground = (each) => {
    for (; each; each = each.parentElement) {
      const found = parts(getComputedStyle(each).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  for (const each of all("body *")) {
    const hasText = [...each.childNodes].some((node) => node.nodeType === 3 && node.data.trim());
    if (!hasText || !isShown(each) || each.closest("svg, :disabled, .unseen, .skip, option")) continue;
    const [one, other] = [light(parts(getComputedStyle(each).color)), light(ground(each))].sort((a, b) => b - a);
    const ratio = (one + 0.05) / (other + 0.05);
    if (ratio < 4.5) wrong.push(`a contrast of ${ratio.toFixed(2)}: ${told(each)}`);
  }
  return [...new Set(wrong)];
}
