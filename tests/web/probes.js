/* What the tests ask of a page: each answers with a list of what is wrong, in words. */

const parse = (text) => {
  const parts = (text.match(/[\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const scale = text.startsWith("color(") ? 255 : 1;
  return [parts[0] * scale, parts[1] * scale, parts[2] * scale, parts[3] ?? 1];
};

const over = (top, under) =>
  [0, 1, 2].map((n) => top[n] * top[3] + under[n] * (1 - top[3])).concat(1);

const behind = (element) => {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    layers.push(parse(getComputedStyle(at).backgroundColor));
  }
  return layers.reverse().reduce((under, top) => over(top, under), [255, 255, 255, 1]);
};

const lightness = (colour) => {
  const [r, g, b] = colour.slice(0, 3).map((value) => {
    const share = value / 255;
    return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
  });
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};

const ratio = (one, other) => {
  const [a, b] = [lightness(one), lightness(other)];
  return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
};

const outline = (element) => element.outerHTML.slice(0, 120);
const shows = (element) => element.checkVisibility({ visibilityProperty: true });
const all = (selector) => [...document.querySelectorAll(selector)];

globalThis.probes = {
  /* Text against what is behind it, by WCAG 2: large text needs 3, all other 4.5. */
  contrast() {
    const told = new Set();
    const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walk.nextNode()) {
      const element = walk.currentNode.parentElement;
      const text = walk.currentNode.textContent.trim();
      if (!text || element.closest(".unseen, option, noscript, .skip, title") || !shows(element))
        continue;
      const style = getComputedStyle(element);
      const isDrawn = Boolean(element.closest("svg"));
      const rect = element.closest(".node")?.querySelector("rect");
      const back = rect ? parse(getComputedStyle(rect).fill) : behind(element);
      const found = ratio(over(parse(isDrawn ? style.fill : style.color), back), back);
      const size = Number.parseFloat(style.fontSize);
      const least = size >= 24 || (size >= 18.6 && Number(style.fontWeight) >= 700) ? 3 : 4.5;
      if (found < least)
        told.add(
          `${element.tagName}.${element.className} ${found.toFixed(2)} "${text.slice(0, 30)}"`,
        );
    }
    return [...told];
  },

  names() {
    const nameOf = (e) =>
      (
        e.getAttribute("aria-label") ||
        e.labels?.[0]?.textContent ||
        e.textContent ||
        e.title ||
        ""
      ).trim();
    const named = "a[href], button, input, select, [role='img'], [role='group'], nav, aside";
    const ids = all("[id]").map((e) => e.id);
    return [
      ...all(named)
        .filter((e) => shows(e) && !nameOf(e))
        .map((e) => `no name: ${outline(e)}`),
      ...ids.filter((id, n) => ids.indexOf(id) !== n).map((id) => `twice: #${id}`),
      ...all("[aria-labelledby]")
        .filter((e) => shows(e) && !document.getElementById(e.getAttribute("aria-labelledby")))
        .map((e) => `named by nothing: ${outline(e)}`),
      ...all("ul > *, ol > *")
        .filter((e) => e.tagName !== "LI")
        .map((e) => `no item: ${outline(e)}`),
      ...all("a a, button a, a button, button button").map((e) => `one in another: ${outline(e)}`),
      ...(all("main h1").length === 1 ? [] : [`${all("main h1").length} first headings`]),
      ...["header", "nav", "main", "footer"].filter((mark) => all(`body > ${mark}`).length !== 1),
    ];
  },

  sideways() {
    const scrolls = (e) => shows(e) && e.scrollWidth > e.clientWidth;
    const own = ".graph, .diff, .unseen, .foot, pre";
    return [
      ...(document.documentElement.scrollWidth > innerWidth ? ["the page"] : []),
      ...all("#main, #detail, #views")
        .filter(scrolls)
        .map((e) => e.id),
      ...all("#main *, #detail *, .top *")
        .filter((e) => {
          const box = e.getBoundingClientRect();
          return box.width && box.right > innerWidth + 1 && !e.closest(own);
        })
        .map(outline),
    ];
  },

  smallTargets() {
    const touched =
      "#views a, .top button, .top select, .top input, .tab, .toggle, #close, .filters input";
    return all(touched)
      .filter(shows)
      .filter(
        (e) => Math.min(e.getBoundingClientRect().height, e.getBoundingClientRect().width) < 40,
      )
      .map(outline);
  },

  /* What stored text must never become. */
  alive() {
    const ours = (e) =>
      e.matches("a") && /^(#|http:\/\/evil\.example)/.test(e.getAttribute("href"));
    const found = all(
      "img, iframe, object, embed, script, a[href], form[action], [onload], [onerror], [style]",
    );
    const told = found.filter((e) => !ours(e) && e.getAttribute("src") !== "board.js").map(outline);
    if (/[\u202e\u0007\u001b]/.test(document.body.textContent))
      told.push("a character that can't be seen");
    return told;
  },

  async scroll(selector, milliseconds) {
    const box = document.querySelector(selector);
    const frames = [];
    let last = performance.now();
    const end = last + milliseconds;
    while (last < end) {
      box.scrollTop += 600;
      await new Promise(requestAnimationFrame);
      frames.push(performance.now() - last);
      last = performance.now();
    }
    frames.sort((a, b) => a - b);
    return {
      cards: box.querySelectorAll(".card").length,
      usual: frames[Math.floor(frames.length * 0.95)],
      longest: frames.at(-1),
    };
  },

  /* The first card of a column that reaches below its middle. */
  middle(selector) {
    const box = document.querySelector(selector);
    const edge = box.getBoundingClientRect();
    const half = (edge.top + edge.bottom) / 2;
    return [...box.querySelectorAll(".card")].find((e) => e.getBoundingClientRect().bottom > half)
      .dataset.key;
  },

  focus() {
    const at = document.activeElement;
    const outlined = [at, at.closest(".card") ?? at].some(
      (e) => getComputedStyle(e).outlineStyle !== "none",
    );
    return `${outlined ? "" : "unseen: "}${at.id || at.textContent.trim()}`;
  },
};

document.addEventListener("securitypolicyviolation", (event) => {
  console.error(`policy violated: ${event.violatedDirective} ${event.blockedURI}`);
});
