/* The page for people. It shows what a source gives it, and nothing else.
 *
 * A source is where data comes from and where deeds go:
 *   views            names of the views that it can answer; the page offers only these
 *   get(view, params)  a promise of the answer; rejects with a Refusal, or a Lost
 *   do(deed, body)     the same, for what people do and agents must not; `body.project` says where
 *   live(hears)        calls hears({event}) on every change, hears({lost}) on a lost connection,
 *                    hears({error}) when nothing can be read; it answers whether it asks anew
 *   isLive             whether it tells of each change by itself; otherwise one can ask again
 * By default it is the server that served the page. A document that holds the page and is no page
 * of that server (an app inside a chat) sets `globalThis.boardSource` before this script runs; for
 * the board it needs `threads` and `thread`. Errors have a `message` that says what is so, a `code`,
 * and `next`: what to do about it.
 *
 * Whatever is stored was written by somebody else. It gets into the document as text nodes and
 * nothing else (`h`), and into addresses by URLSearchParams.
 */

class Refusal extends Error {
  constructor({ code, fact, next_step }) {
    super(fact);
    this.code = code;
    this.next = next_step || "";
  }
}

class Lost extends Error {}

function serverSource() {
  const answer = async (asked) => {
    let response;
    try {
      response = await asked;
    } catch {
      throw new Lost("The page can't reach the server.");
    }
    if (response.status === 403) throw new Lost("The server has another key by now.");
    let body = null;
    try {
      body = await response.json();
    } catch {
      /* told below: no answer of ours is without JSON */
    }
    if (body?.error) throw new Refusal(body.error);
    if (!response.ok || body === null) {
      throw new Refusal({
        code: "internal",
        fact: `The server answered ${response.status} ${response.statusText}.`,
        next_step: "Look at the terminal that mcp-state web runs in.",
      });
    }
    return body;
  };
  const query = (params) => {
    const given = Object.entries(params).filter(
      ([, v]) => v !== undefined && v !== "" && v !== null,
    );
    const text = new URLSearchParams(given).toString();
    return text ? `?${text}` : "";
  };
  return {
    isLive: true,
    views: [...VIEWS.map((view) => view.needs), "thread", "projects"],
    get: (view, params = {}) =>
      answer(fetch(`api/${view}${query(params)}`, { cache: "no-store", credentials: "omit" })),
    do: (deed, { project, ...body }) =>
      answer(
        fetch(`api/do/${deed}${query({ project })}`, {
          method: "POST",
          headers: { "Content-Type": "application/json" },
          credentials: "omit",
          body: JSON.stringify(body),
        }),
      ),
    live(hears) {
      let stream = null;
      let waiting = 0;
      const open = () => {
        clearTimeout(waiting);
        stream?.close();
        stream = new EventSource(`api/live${query({ project: route.project })}`);
        stream.onopen = () => hears({ isFound: true });
        for (const kind of ["change", "problem"])
          stream.addEventListener(kind, ({ data }) => hears(JSON.parse(data)));
        stream.onerror = () => {
          stream.close();
          waiting = setTimeout(open, 2000);
          answer(fetch(`api/projects`, { cache: "no-store", credentials: "omit" })).catch(
            (problem) => problem instanceof Lost && hears({ lost: true }),
          );
        };
      };
      const show = () => {
        if (document.hidden) {
          clearTimeout(waiting);
          stream?.close();
        } else {
          open();
        }
      };
      document.addEventListener("visibilitychange", show);
      show();
      return { again: open };
    },
  };
}

/* ---- The document ------------------------------------------------------------------------- */

const $ = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const HTML = "http://www.w3.org/1999/xhtml";
const UNSEEN =
  /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g;

/** Text without what can't be seen, or turns the text around it about: shown as its number. */
const clean = (text) =>
  String(text)
    .replaceAll("\r\n", "\n")
    .replace(UNSEEN, (c) => `⟨${c.codePointAt(0).toString(16)}⟩`);

function fill(element, kids, props) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice(2), value);
    else if (name === "href" && !/^(#|https?:\/\/)/.test(value)) continue;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const kid of kids.flat(Infinity)) {
    if (kid === undefined || kid === null || kid === false || kid === "") continue;
    element.append(kid instanceof Node ? kid : document.createTextNode(clean(kid)));
  }
  return element;
}

/** An element: its tag and classes as `tag.class`, its attributes if there are any, what is in it. */
function make(space, what, rest) {
  const [tag, ...classes] = what.split(".");
  const element = document.createElementNS(space, tag);
  if (classes.length) element.setAttribute("class", classes.join(" "));
  const hasProps = rest[0]?.constructor === Object;
  return fill(element, hasProps ? rest.slice(1) : rest, hasProps ? rest[0] : null);
}

const h = (what, ...rest) => make(HTML, what, rest);
const s = (what, ...rest) => make(SVG, what, rest);
const icon = (name, kind = "icon") =>
  s("svg", { class: kind, "aria-hidden": "true" }, s("use", { href: `#i-${name}` }));

const WEB = /https?:\/\/[^\s<>"'`{}|\\^]+/g;

/** A text of somebody; web addresses in it can be followed, no others. */
function said(text, tag = "span", kind = "") {
  const whole = clean(text ?? "");
  const parts = [];
  let from = 0;
  for (const match of whole.matchAll(WEB)) {
    const address = match[0].replace(/[.,;:!?)\]]+$/, "");
    if (!URL.canParse(address)) continue;
    parts.push(whole.slice(from, match.index), outward(address));
    from = match.index + address.length;
  }
  parts.push(whole.slice(from));
  return h(tag, { class: `said ${kind}`.trim(), dir: "auto" }, parts);
}

const outward = (address) =>
  h(
    "a",
    { href: address, rel: "noopener noreferrer nofollow", target: "_blank", class: "outward" },
    address,
  );

/** A name as it was written, kept apart from the direction of what stands around it. */
const name = (text, kind = "name") => h("bdi", { class: kind }, text);

function flash(element) {
  element.classList.add("changed");
  setTimeout(() => element.classList.remove("changed"), 2500);
}

const prints = new WeakMap();

/** Make a box hold what `build` makes of each item, keeping what hasn't changed. */
function reconcile(box, items, key, build) {
  const before = new Map();
  for (const child of box.children) before.set(child.dataset.key, child);
  const isFirst = !box.dataset.filled;
  box.dataset.filled = "yes";
  let at = box.firstElementChild;
  for (const item of items) {
    const id = key(item);
    const print = JSON.stringify(item);
    let element = before.get(id);
    before.delete(id);
    if (element === undefined || prints.get(element) !== print) {
      const made = build(item);
      made.dataset.key = id;
      prints.set(made, print);
      if (!isFirst && calm.changing) flash(made);
      if (element !== undefined) {
        const focus = element.contains(document.activeElement);
        if (at === element) at = made;
        element.replaceWith(made);
        if (focus) (made.matches("a, button") ? made : made.querySelector("a, button"))?.focus();
      }
      element = made;
    }
    if (element === at) at = at.nextElementSibling;
    else box.insertBefore(element, at);
  }
  for (const gone of before.values()) gone.remove();
}

/** While a change from elsewhere is shown: what is new is marked, and what is read stays put. */
const calm = { changing: false };

function hold(scroller, change) {
  const edge = scroller.getBoundingClientRect();
  const found = document
    .elementsFromPoint(edge.left + Math.min(60, edge.width / 2), edge.top + 70)
    .map((element) => element.closest("[data-key]"))
    .find((element) => element !== null && scroller.contains(element));
  const key = found?.dataset.key;
  const parent = found?.parentElement;
  const before = found?.getBoundingClientRect().top;
  const top = scroller.scrollTop;
  change();
  if (top < 8 || key === undefined || !parent.isConnected) return;
  const now = [...parent.children].find((child) => child.dataset.key === key);
  if (now) scroller.scrollTop += now.getBoundingClientRect().top - before;
}

/** Put other content in a box; what was unfolded and what had the focus stays so. */
function swap(box, ...content) {
  const open = new Map(
    [...box.querySelectorAll("details[data-keep]")].map((d) => [d.dataset.keep, d.open]),
  );
  const active = box.contains(document.activeElement) ? document.activeElement : null;
  const focus = active && (active.id || active.dataset.focus || active.getAttribute("href"));
  const top = box.scrollTop;
  box.replaceChildren();
  fill(box, content);
  for (const details of box.querySelectorAll("details[data-keep]")) {
    if (open.has(details.dataset.keep)) details.open = open.get(details.dataset.keep);
  }
  if (focus) {
    const again = [...box.querySelectorAll("a, button, select, input, summary, [tabindex]")].find(
      (e) => focus === (e.id || e.dataset.focus || e.getAttribute("href")),
    );
    again?.focus({ preventScroll: true });
  }
  box.scrollTop = top;
}

/* ---- Words -------------------------------------------------------------------------------- */

const NUMBER = new Intl.NumberFormat("en");
const FULL = new Intl.DateTimeFormat("en-GB", { dateStyle: "full", timeStyle: "long" });
const DAY = new Intl.DateTimeFormat("en-GB", {
  weekday: "long",
  day: "numeric",
  month: "long",
  year: "numeric",
});
const HOUR = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit" });
const SHORT = new Intl.DateTimeFormat("en-GB", {
  day: "numeric",
  month: "short",
  hour: "2-digit",
  minute: "2-digit",
});

const clock = { ahead: 0 };
const now = () => Date.now() + clock.ahead;
const num = (value) => NUMBER.format(value);
const plural = (count, noun, nouns = `${noun}s`) => `${num(count)} ${count === 1 ? noun : nouns}`;
const short = (value) =>
  value < 10_000
    ? num(value)
    : new Intl.NumberFormat("en", { notation: "compact", maximumFractionDigits: 1 }).format(value);

function span(seconds) {
  if (seconds < 59.5) return `${Math.round(seconds)} s`;
  if (seconds < 59.5 * 60) return `${Math.round(seconds / 60)} min`;
  if (seconds < 47.5 * 3600) return `${Math.round(seconds / 3600)} h`;
  return `${num(Math.round(seconds / 86400))} d`;
}

function ago(at) {
  const seconds = (now() - at) / 1000;
  if (seconds < -1) return `in ${span(-seconds)}`;
  return seconds < 5 ? "just now" : `${span(seconds)} ago`;
}

/** A moment, told from now; the moment itself when pointed at. */
function when(text) {
  if (!text) return null;
  const at = Date.parse(text);
  return h("time", { datetime: text, title: FULL.format(at), "data-at": at }, ago(at));
}

const held = (lease) =>
  h(
    "span.held",
    icon("lock"),
    h("span", "held by ", who(lease.holder), ", ends ", when(lease.until)),
  );

function tick() {
  for (const time of document.querySelectorAll("time[data-at]")) {
    const words = ago(Number(time.dataset.at));
    if (time.textContent !== words) time.textContent = words;
  }
}

function who(actor) {
  if (!actor) return null;
  const whole = [actor.agent, actor.client, actor.session].filter(Boolean).join(" · ");
  return h("bdi.who", { title: clean(whole) }, actor.agent || "unknown");
}

const by = (actor, at) => [who(actor), " ", when(at)];

const STATUS = ["active", "watching", "blocked", "done", "dropped"];
const TRUST = ["refuted", "stale", "provisional", "trusted", "archival"];
const OUTCOME = { ok: "ok", failed: "failed", open: "left open" };

const mark = (word, shown = word) => h("span", { class: `mark is-${word}` }, icon(word), shown);
const dueMark = (at) => h("span.due", at ? ["due ", when(at)] : "due");

/* ---- Where we are: the address's fragment --------------------------------------------------- */

const route = { view: "", project: "", params: new URLSearchParams(), open: null };

function readRoute() {
  const text = location.hash.replace(/^#/, "");
  const cut = text.indexOf("?");
  route.params = new URLSearchParams(cut < 0 ? "" : text.slice(cut + 1));
  const asked = cut < 0 ? text : text.slice(0, cut);
  route.view = shown().some((view) => view.id === asked) ? asked : shown()[0].id;
  route.project = route.params.get("project") ?? "";
  const open = route.params.get("open") ?? "";
  const colon = open.indexOf(":");
  route.open = colon > 0 ? { kind: open.slice(0, colon), name: open.slice(colon + 1) } : null;
}

/** The address of a view; nothing of the present one but the project is kept. */
function to(view, params = {}) {
  const all = new URLSearchParams();
  if (route.project) all.set("project", route.project);
  for (const [key, value] of Object.entries(params)) if (value) all.set(key, value);
  const text = all.toString();
  return `#${view}${text ? `?${text}` : ""}`;
}

/** The present address with some of it changed. */
function here(changes) {
  const all = new URLSearchParams(route.params);
  for (const [key, value] of Object.entries(changes)) {
    if (value) all.set(key, value);
    else all.delete(key);
  }
  const text = all.toString();
  return `#${route.view}${text ? `?${text}` : ""}`;
}

const DETAILED = { open: "", of: "", left: "", right: "" };
const opening = (kind, of, more = {}) => here({ ...DETAILED, open: `${kind}:${of}`, ...more });
const closing = () => here(DETAILED);
const isOpen = (kind, of) => route.open?.kind === kind && route.open.name === of;

/** A link to what the source can show; to what it can't, its words alone. */
const linked = (view, kind, address, ...words) =>
  source.views.includes(view)
    ? h("a", { href: address, class: kind }, words)
    : h("span", { class: kind }, words);

/** Links to what a name stands for. */
const threadLink = (of, shownAs = of) =>
  linked("thread", "ref", opening("thread", of), name(shownAs));
const runLink = (of) => linked("runs", "ref", opening("run", of), name(of));
const factLink = (of) => linked("facts", "ref", opening("fact", of), name(of));

function subjectLink(kind, of, run) {
  if (kind === "thread") return threadLink(of);
  if (kind === "run") return runLink(of);
  if (kind === "fact") return factLink(of);
  const [isOfRun, own] = [
    run && of.toLowerCase().startsWith(`${run.toLowerCase()}/`),
    of.slice(run?.length + 1),
  ];
  if (kind === "memory")
    return linked(
      "memory",
      "ref",
      isOfRun ? opening("block", own, { of: run }) : opening("block", of),
      name(of),
    );
  if (kind === "step" && isOfRun) return linked("runs", "ref", opening("run", run), name(of));
  if (kind === "journal")
    return linked("journal", "ref", to("journal", { before: String(Number(of) + 1) }), `entry ${of}`);
  return of ? name(of) : null;
}

/* ---- Parts -------------------------------------------------------------------------------- */

const button = (words, does, kind = "") =>
  h("button", { type: "button", class: kind, onclick: does }, words);

function empty(title, ...lines) {
  return h(
    "div.empty",
    h("h3", title),
    lines.map((line) => (line instanceof Node ? line : h("p", line))),
  );
}

const command = (text) => h("code.command", text);

const sentence = (text) =>
  text.charAt(0).toUpperCase() + text.slice(1).replace(/([^.!?…])$/, "$1.");

function refused(problem, again) {
  if (problem instanceof Lost)
    return h("div.notice", h("strong", "Not loaded."), " The connection is lost.");
  if (!problem.code) console.error(problem);
  const fact = problem.code ? problem.message : `The page failed: ${problem.message}`;
  return h(
    "div.notice.bad",
    { role: "alert" },
    h("strong", sentence(fact)),
    " ",
    problem.next ?? "",
    again ? [" ", button("Try again", again, "small")] : null,
  );
}

/** How much of how much: a bar and its words. */
function meter(label, value, most, kind = "", words = "") {
  const share = most ? Math.min(1, value / most) : 0;
  const text = words || `${num(value)}${most ? ` of ${num(most)}` : ""}`;
  const bar = s(
    "svg",
    {
      class: `meter ${kind}`,
      "aria-hidden": "true",
      viewBox: "0 0 100 6",
      preserveAspectRatio: "none",
    },
    s("rect.room", { width: 100, height: 6 }),
    s("rect.used", { width: (share * 100).toFixed(2), height: 6 }),
  );
  return h(
    "div.metered",
    h("span.label", label),
    most ? bar : h("span.meter.none"),
    h("span.num", text),
  );
}

/** Pairs of a label and what there is; those of nothing are left out. */
function pairs(...rows) {
  const kept = rows.filter(
    ([, value]) => value !== undefined && value !== null && value !== "" && value !== false,
  );
  return kept.length
    ? h(
        "dl.pairs",
        kept.map(([label, value]) => [h("dt", label), h("dd", value)]),
      )
    : null;
}

function section(title, count, ...content) {
  const kept = content.flat(Infinity).filter(Boolean);
  if (!kept.length) return null;
  return h("section", h("h3", title, count ? [" ", h("span.count", num(count))] : null), kept);
}

/** One of a list that the keys j and k walk over. */
const item = (...content) => h("li", { "data-item": "" }, content);
const rows = (items, kind = "") => (items.length ? h(`ul.rows${kind}`, items) : null);
const labelled = (label, text) =>
  text ? h("p.said.soft", { dir: "auto" }, h("span.label", `${label} `), text) : null;

const folded = (keep, title, ...content) =>
  h("details", { "data-keep": keep }, h("summary", title), content);

const toggle = (words, isOn, address) =>
  h("a", { href: address, class: "toggle", role: "button", "aria-pressed": String(isOn) }, words);

function tabs(label, choices) {
  return h(
    "div.tabs",
    { role: "group", "aria-label": label },
    choices.map(({ words, count, isOn, address, kind }) =>
      h(
        "a",
        { href: address, class: "tab", "aria-current": isOn ? "true" : false },
        kind ? icon(kind) : null,
        words,
        count === undefined ? null : h("span.count", short(count)),
      ),
    ),
  );
}

/** A list that is loaded page by page, and again when something changed. */
function feed(scroller, box, { fetch, key, build, page = 60, nothing }) {
  const state = { items: [], next: "", busy: null, isOver: false };
  const end = h("div.end");
  box.after(end);
  const draw = () => {
    const change = () => reconcile(box, state.items, key, build);
    if (calm.changing) hold(scroller, change);
    else change();
    swap(
      end,
      state.next ? h("p.loading", "Loading more…") : state.items.length ? [] : (nothing?.() ?? []),
    );
  };
  const fail = (problem) => {
    heard(problem);
    swap(end, refused(problem, again));
  };
  const load = async (cursor, wanted) => {
    const got = [];
    let next = cursor;
    do {
      const answer = await fetch(next, Math.min(200, Math.max(page, wanted - got.length)));
      got.push(...answer.items);
      next = answer.next;
    } while (next && got.length < wanted);
    return { got, next };
  };
  const once = (work) => {
    const before = state.busy ?? Promise.resolve();
    const mine = before.then(() => (state.isOver ? undefined : work())).catch(fail);
    state.busy = mine;
    return mine;
  };
  const more = () =>
    once(async () => {
      if (!state.next) return;
      const { got, next } = await load(state.next, page);
      if (state.isOver) return;
      state.items = state.items.concat(got);
      state.next = next;
      draw();
    });
  const watch = new IntersectionObserver(
    (seen) => {
      if (seen.some((one) => one.isIntersecting) && state.next) {
        more().then(() => {
          watch.unobserve(end);
          if (!state.isOver) watch.observe(end);
        });
      }
    },
    { root: scroller, rootMargin: "900px 0px" },
  );
  watch.observe(end);
  return {
    refresh: () =>
      once(async () => {
        const { got, next } = await load("", Math.max(page, state.items.length));
        if (state.isOver) return;
        state.items = got;
        state.next = next;
        draw();
        watch.unobserve(end);
        watch.observe(end);
      }),
    close() {
      state.isOver = true;
      watch.disconnect();
    },
  };
}

const get = async (view, params = {}) => {
  const answer = await source.get(view, { project: route.project, ...params });
  if (answer.now) clock.ahead = Date.parse(answer.now) - Date.now();
  if (answer.scope) tellScope(answer.scope, answer.now);
  return answer;
};

/* ---- Threads ------------------------------------------------------------------------------ */

const MOST_WAITING = 10; // of those that wait for a thread, an answer names no more
const few = (names, link, count, more = "") => [
  names.slice(0, 3).map((one, n) => [n ? ", " : "", link(one)]),
  count > 3 ? ` +${num(count - Math.min(3, names.length))}${more}` : "",
];

function threadCard({ thread: t, waits }) {
  const isOver = t.status === "done" || t.status === "dropped";
  const line = (label, value, kind = "") =>
    value &&
    h(
      "p",
      { class: `line ${kind}` },
      h("span.label", label),
      " ",
      h("span.said", { dir: "auto" }, value),
    );
  const what =
    t.status === "blocked"
      ? line("waits for", t.waiting_on)
      : t.status === "watching"
        ? line("check", t.check, "mono") || line("next", t.next_action)
        : t.status === "done"
          ? line("proof", t.evidence)
          : t.status === "dropped"
            ? line("why", t.note)
            : line("next", t.next_action);
  return h(
    "article",
    { class: `card is-${t.status}${t.due ? " is-due" : ""}`, "data-item": "" },
    h(
      "a.cover",
      {
        href: opening("thread", t.name),
        "aria-current": isOpen("thread", t.name) ? "true" : false,
      },
      h("span.title", { dir: "auto" }, t.title || t.name),
      h("span.unseen", `, ${t.status}${t.due ? ", due" : ""}`),
    ),
    h(
      "p.sub",
      t.title && t.title !== t.name ? [name(t.name), " · "] : null,
      when(isOver ? t.status_at : t.changed_at),
      t.priority !== 5 && !isOver
        ? h(
            "span",
            { class: `prio p${t.priority}`, title: "Priority: 1 first, 9 last" },
            `P${t.priority}`,
          )
        : null,
    ),
    what,
    t.due || (t.status !== "active" && t.recheck_at) || t.lease || t.criteria
      ? h(
          "p.facts",
          t.due
            ? dueMark(t.recheck_at)
            : t.recheck_at && !isOver
              ? h("span.soft", "look again ", when(t.recheck_at))
              : null,
          t.lease ? held(t.lease) : null,
          t.criteria
            ? h(
                "span",
                {
                  class: `score${t.passing === t.criteria ? " all" : ""}`,
                  title: "Acceptance criteria that pass",
                },
                `${t.passing}/${t.criteria} pass`,
              )
            : null,
        )
      : null,
    waits?.needs.length
      ? h(
          "p.waits",
          h("span.label", "needs"),
          " ",
          few(waits.needs, threadLink, Math.max(t.waits_for, waits.needs.length)),
        )
      : null,
    waits?.needed_by.length
      ? h(
          "p.waits",
          h("span.label", "needed by"),
          " ",
          few(
            waits.needed_by,
            threadLink,
            waits.needed_by.length,
            waits.needed_by.length < MOST_WAITING ? "" : " or more",
          ),
        )
      : null,
    (t.relies_on ?? []).some((p) => ["stale", "refuted"].includes(p.trust))
      ? h("p.waits.fell", icon("stale"), " relies on what fell")
      : null,
  );
}

function board(root) {
  const params = route.params;
  const due = params.get("due") ? "true" : "";
  const all = Boolean(params.get("closed"));
  const chosen = STATUS.includes(params.get("column")) ? params.get("column") : "active";
  const bar = h("div.filters");
  const columns = h("div.columns");
  root.append(heading("Board", bar), columns);
  const feeds = [];
  for (const status of STATUS.filter((one) => !due || isOpenStatus(one))) {
    const isRail = !isOpenStatus(status) && !all;
    const box = h("div.cards");
    const scroller = h("div.scroller", { tabindex: "-1" }, box);
    const kind = `${status === chosen ? " chosen" : ""}${isRail ? " rail" : ""}`;
    const title = h("h2", { id: `column-${status}` });
    columns.append(
      h(
        "section",
        { class: `column is-${status}${kind}`, "aria-labelledby": title.id, "data-column": status },
        h("header", title),
        scroller,
      ),
    );
    if (phone.matches ? status === chosen : !isRail) feeds.push(column(scroller, box, status, due));
  }
  const counts = () => {
    const threads = seen.scope?.threads ?? {};
    for (const status of STATUS) {
      const title = $(`column-${status}`);
      if (title)
        swap(
          title,
          isOpenStatus(status) || all
            ? mark(status)
            : h("a", { href: here({ closed: "1" }), class: "unfold" }, mark(status)),
          h("span.count", num(threads[status] ?? 0)),
        );
    }
    swap(
      bar,
      tabs(
        "Status",
        STATUS.map((status) => ({
          words: h("span.words", status),
          count: threads[status] ?? 0,
          isOn: status === chosen,
          address: here({ column: status }),
          kind: status,
        })),
      ),
      toggle("Due only", Boolean(due), here({ due: due ? "" : "1" })),
      due || phone.matches ? null : toggle("Closed too", all, here({ closed: all ? "" : "1" })),
    );
    const none = !STATUS.some((status) => threads[status]) && seen.scope;
    columns.hidden = Boolean(none);
    root.querySelector(":scope > .empty")?.remove();
    if (none)
      root.append(
        nothingYet(
          "No threads yet",
          "A thread is one line of work: what is next, whom it waits for, when to look again.",
          'mcp-state thread set fix-login --title "Fix the login" --next-action "write a failing test"',
        ),
      );
  };
  counts();
  return {
    refresh: async () => {
      await Promise.all(feeds.map((one) => one.refresh()));
      counts();
    },
    close: () => feeds.forEach((one) => one.close()),
  };
}

function column(scroller, box, status, due) {
  return feed(scroller, box, {
    page: 50,
    key: ({ thread }) => thread.name,
    build: threadCard,
    fetch: async (cursor, limit) => {
      const answer = await get("threads", { status, due, limit, cursor });
      const waits = new Map(answer.waits.map((one) => [one.thread, one]));
      const items = answer.threads.map((thread) => ({ thread, waits: waits.get(thread.name) }));
      return { items, next: answer.cursor };
    },
    nothing: () => h("p.none", due ? `Nothing ${status} is due.` : NONE[status]),
  });
}

const isOpenStatus = (status) => status !== "done" && status !== "dropped";
const NONE = {
  active: "Nothing to work on.",
  watching: "Nothing to look at again.",
  blocked: "Nothing waits for anybody.",
  done: "Nothing is done yet.",
  dropped: "Nothing was dropped.",
};

function nothingYet(title, words, example) {
  return empty(
    title,
    words,
    "Agents write here through MCP. To begin by hand, type:",
    command(example),
  );
}

function heading(title, ...more) {
  return h("header.head", h("h1", title), more);
}

/* ---- The front view ------------------------------------------------------------------------- */

const NEWS = 12;

/** What the first view asks for, beside the overview itself. */
const OVERVIEW = {
  due: ["threads", { due: "true", limit: 8 }],
  active: ["threads", { status: "active", limit: 6 }],
  blocked: ["threads", { status: "blocked", limit: 6 }],
  check: ["facts", { due: "true", limit: 6 }],
  refuted: ["facts", { trust: "refuted", limit: 4 }],
  stale: ["facts", { trust: "stale", limit: 4 }],
  open: ["runs", { status: "open", limit: 5 }],
  failed: ["runs", { status: "failed", limit: 3 }],
  ends: ["journal", { kind: "dead_end", limit: 4 }],
};

const most = (count) => (count > 1000 ? "1,000+" : num(count));

function overview(root) {
  const body = h("div.overview");
  root.append(body);
  const refresh = async () => {
    const o = await get("overview");
    const since = Math.max(0, o.scope.event - NEWS);
    if (!o.scope.event) return swap(body, welcome());
    const asked = Object.values(OVERVIEW).map(([view, params]) => get(view, params));
    const [last, ...answers] = await Promise.all([
      get("history", { since, limit: NEWS }),
      ...asked,
    ]);
    const found = Object.fromEntries(Object.keys(OVERVIEW).map((key, n) => [key, answers[n]]));
    swap(
      body,
      objective(o.objective),
      tiles(o),
      h("div.halves", h("div", toDo(o, found)), h("div", underWay(o, found, last.events))),
    );
  };
  return { refresh, close() {} };
}

function tiles(o) {
  const tile = (kind, words, count, address) =>
    h("a", { class: `tile is-${kind}`, href: address }, words, h("span.big", count));
  return h(
    "div.tiles",
    STATUS.map((status) => {
      const closed = isOpenStatus(status) ? "" : "1";
      const count = short(o.scope.threads?.[status] ?? 0);
      return tile(status, mark(status), count, to("board", { column: status, closed }));
    }),
    tile(
      "due",
      h("span.mark", icon("watching"), "due"),
      most(sum(o.threads_due)),
      to("board", { due: "1" }),
    ),
  );
}

/** The way to the rest of what is listed in part. */
const rest = (count, shownOf, address, what) =>
  count > shownOf.length
    ? h("p.more", h("a", { href: address }, `all ${most(count)} ${what}`))
    : null;

function toDo(o, { due, active, blocked, check }) {
  const counts = o.scope.threads ?? {};
  const [threadsDue, factsDue] = [sum(o.threads_due), sum(o.facts_due)];
  const link = (t) => threadLink(t.name, t.title || t.name);
  const checked = (t) => (t.check ? h("p", h("code.check", t.check)) : null);
  return [
    section(
      "Due now",
      threadsDue,
      rows(
        due.threads.map((t) => item(mark(t.status), link(t), dueMark(t.recheck_at), checked(t))),
      ),
      rest(threadsDue, due.threads, to("board", { due: "1" }), "due threads"),
    ),
    section(
      "In progress",
      counts.active,
      rows(
        active.threads.map((t) =>
          item(link(t), t.lease ? held(t.lease) : null, labelled("next", t.next_action)),
        ),
      ),
      rest(counts.active, active.threads, to("board", { column: "active" }), "active threads"),
    ),
    section(
      "Waiting for somebody",
      counts.blocked,
      rows(
        blocked.threads.map((t) =>
          item(
            link(t),
            h("span.soft", "since ", when(t.status_at)),
            labelled("waits for", t.waiting_on),
          ),
        ),
      ),
      rest(counts.blocked, blocked.threads, to("board", { column: "blocked" }), "blocked threads"),
    ),
    section(
      "Check before you rely on it",
      factsDue,
      rows(check.facts.map(factRow)),
      rest(factsDue, check.facts, to("facts", { due: "1" }), "facts to check"),
    ),
  ];
}

function underWay(o, { open, refuted, stale, failed, ends }, events) {
  const { runs, facts } = o.scope;
  const why = (r) => said(r.reflection || r.result, "p", "soft clamp two");
  const whose = (e) =>
    h("p.soft", by(e.actor, e.at), e.thread ? [", ", threadLink(e.thread)] : null);
  return [
    section(
      "Runs under way",
      runs?.open,
      rows(open.runs.map(runRow)),
      rest(runs?.open, open.runs, to("runs", { status: "open" }), "open runs"),
    ),
    section(
      "No longer believed",
      (facts?.refuted ?? 0) + (facts?.stale ?? 0),
      rows([...refuted.facts, ...stale.facts].map(factRow)),
    ),
    section(
      "Dead ends",
      0,
      rows([
        ...failed.runs.map((r) => item(runMark(r), runLink(r.name), why(r))),
        ...[...ends.entries].reverse().map((e) => item(said(e.text, "p", "clamp two"), whose(e))),
      ]),
    ),
    section(
      "What changed last",
      0,
      rows([...events].reverse().map(eventRow), ".events"),
      h("p.more", h("a", { href: to("changes") }, "all changes")),
    ),
  ];
}

function objective(o) {
  if (!o)
    return h(
      "section.objective",
      h("h1.label", "Objective"),
      h(
        "p.soft",
        "None is set. To set it: ",
        command('mcp-state objective set "Ship the import" --reason "agreed on Monday"'),
      ),
    );
  return h(
    "section.objective",
    h("h1.label", "Objective"),
    said(o.objective, "p", "aim"),
    o.intent ? h("p.soft", "Behind it: ", said(o.intent)) : null,
    h(
      "p.soft",
      by(o.changed_by, o.changed_at),
      o.reason ? [", because ", said(o.reason)] : null,
      o.was ? [" (was: ", said(o.was), ")"] : null,
    ),
  );
}

function welcome() {
  return h(
    "div.welcome",
    h("h1", "Nothing is kept here yet"),
    h(
      "p",
      "This page shows what agents keep about their work in this project: threads, the journal, runs, facts, memory. It fills by itself as soon as they write.",
    ),
    h(
      "ol",
      h(
        "li",
        "Connect an agent: ",
        command("mcp-state install codex"),
        " or ",
        command("mcp-state install claude-code"),
      ),
      h(
        "li",
        "Or write the first line by hand: ",
        command('mcp-state journal append "Looked into the login"'),
      ),
      h("li", "Or choose another project at the top of this page."),
    ),
  );
}

function eventRow(e) {
  return h(
    "li",
    {
      class: `event${e.operation === "refused" ? " refused" : ""}`,
      "data-item": "",
      "data-key": String(e.seq),
    },
    h("span.kind", e.kind === "memory" ? "block" : e.kind),
    subjectLink(e.kind, e.name, e.run),
    h("span.what.said", { dir: "auto" }, e.summary || e.operation),
    h("span.soft", by(e.actor, e.at)),
  );
}

/* ---- The journal ---------------------------------------------------------------------------- */

function journal(root) {
  const p = Object.fromEntries(
    ["kind", "actor", "thread", "run", "before"].map((key) => [key, route.params.get(key) ?? ""]),
  );
  const kinds = h("datalist", { id: "kinds" }, []);
  const agents = h("datalist", { id: "agents" }, []);
  const offer = (list, words) =>
    words && list.replaceChildren(...words.map((word) => h("option", { value: word })));
  const field = (label, key, more = {}) =>
    h(
      "label",
      h("span", label),
      h("input", {
        name: key,
        value: p[key],
        autocomplete: "off",
        spellcheck: "false",
        maxlength: "128",
        placeholder: "any",
        ...more,
      }),
    );
  const form = h(
    "form.filters.fields",
    {
      onsubmit: (event) => {
        event.preventDefault();
        const given = new FormData(event.target);
        const words = String(given.get("words")).trim();
        if (words) go(to("search", { query: words, kinds: "journal" }));
        else
          go(
            here({
              ...Object.fromEntries([...given].map(([key, value]) => [key, String(value).trim()])),
              before: "",
              words: "",
            }),
          );
      },
    },
    field("Kind", "kind", { list: "kinds" }),
    field("Agent", "actor", { list: "agents" }),
    field("Thread", "thread"),
    field("Run", "run"),
    h(
      "label",
      h("span", "Words"),
      h("input", { name: "words", autocomplete: "off", placeholder: "search", type: "search" }),
    ),
    kinds,
    agents,
    h("button", { type: "submit" }, "Filter"),
    p.kind || p.actor || p.thread || p.run || p.before
      ? h("a.clear", { href: to("journal") }, p.before ? "newest" : "clear")
      : null,
  );
  const box = h("div.timeline");
  const isFiltered = p.kind || p.actor || p.thread || p.run;
  root.append(
    heading(
      "Journal",
      phone.matches
        ? h("details", { open: Boolean(isFiltered) }, h("summary", "Filter"), form)
        : form,
    ),
    box,
  );
  let day = "";
  const list = feed($("main"), box, {
    page: 50,
    key: (item) => item.key,
    build: (item) => (item.day ? h("h2.day", item.day) : entry(item.entry)),
    fetch: async (cursor, limit) => {
      const answer = await get("journal", { ...p, before: cursor || p.before, limit });
      if (!cursor) day = "";
      offer(kinds, answer.kinds);
      offer(agents, answer.actors);
      const items = [];
      for (const one of [...answer.entries].reverse()) {
        const its = DAY.format(Date.parse(one.at));
        if (its !== day) items.push({ key: `day ${its}`, day: its });
        day = its;
        items.push({ key: String(one.seq), entry: one });
      }
      const oldest = answer.entries[0];
      return { items, next: oldest && answer.older !== 0 ? String(oldest.seq) : "" };
    },
    nothing: () =>
      isFiltered
        ? empty(
            "No entry is like that",
            h("p", h("a", { href: to("journal") }, "Show all entries")),
          )
        : nothingYet(
            "The journal is empty",
            "It holds what happened, in the agents' own words, and can only grow.",
            'mcp-state journal append "Looked into the login: the token expires too early"',
          ),
  });
  return list;
}

function entry(e) {
  const isLong = e.text.length > 900 || e.text.split("\n").length > 14;
  const text = said(e.text, "p", isLong ? "text clamp" : "text");
  return h(
    "article",
    {
      class: `entry k-${/^[a-z_]+$/.test(e.kind) ? e.kind : "other"}`,
      "data-item": "",
      tabindex: "-1",
    },
    h(
      "p.at",
      h(
        "time",
        { datetime: e.at, title: FULL.format(Date.parse(e.at)) },
        HOUR.format(Date.parse(e.at)),
      ),
    ),
    h(
      "div",
      h(
        "p.sub",
        e.kind
          ? linked(
              "journal",
              "chip kind",
              to("journal", { kind: e.kind }),
              e.kind.replaceAll("_", " "),
            )
          : null,
        linked("journal", "who", to("journal", { actor: e.actor.agent }), who(e.actor)),
        e.thread ? h("span", h("span.label", "thread "), threadLink(e.thread)) : null,
        e.run ? h("span", h("span.label", "run "), runLink(e.run)) : null,
        h("span.soft", when(e.at)),
      ),
      text,
      isLong
        ? button(
            "Show all",
            (event) => {
              text.classList.remove("clamp");
              event.target.remove();
            },
            "small",
          )
        : null,
    ),
  );
}

/* ---- Runs ----------------------------------------------------------------------------------- */

const MOST_RUNS = 2000;
const RUN_STATUS = ["open", "completed", "failed", "abandoned"];
const RUN_MARK = { open: "active", completed: "done", failed: "refuted", abandoned: "dropped" };
const runMark = (run) => mark(RUN_MARK[run.status] ?? "dropped", run.status);

const progress = (r) =>
  r.done !== undefined
    ? meter("progress", r.done, r.total, "", r.total ? "" : `${num(r.done)} done`)
    : r.steps
      ? meter("steps", r.steps_done, r.steps)
      : null;

function budgets(r) {
  const rows = [
    ["attempts", r.attempts, r.max_attempts],
    ["minutes", r.minutes, r.max_minutes],
    ["tokens", r.tokens_in + r.tokens_out, r.max_tokens],
  ];
  return rows.map(([label, used, most]) =>
    meter(
      label,
      used,
      most,
      most && used >= most ? "spent" : most && used > 0.8 * most ? "near" : "budget",
      most ? `${short(used)} of ${short(most)}` : `${short(used)}, no budget`,
    ),
  );
}

function runRow(r) {
  return h(
    "li.run",
    { "data-item": "" },
    h(
      "p.sub",
      runMark(r),
      runLink(r.name),
      r.stopped && r.status === "open" ? h("span.due.bad", `budget of ${r.stopped} spent`) : null,
      h(
        "span.soft",
        r.finished_at ? ["ended ", when(r.finished_at)] : by(r.touched_by, r.touched_at),
      ),
    ),
    r.goal ? h("p.said.goal", { dir: "auto" }, r.goal) : null,
    progress(r),
    r.max_attempts || r.max_minutes || r.max_tokens
      ? budgets(r).filter((_, n) => [r.max_attempts, r.max_minutes, r.max_tokens][n])
      : null,
  );
}

function runs(root) {
  const status = RUN_STATUS.includes(route.params.get("status")) ? route.params.get("status") : "";
  const asked = Number.parseInt(route.params.get("many"), 10) || 100;
  const many = Math.min(MOST_RUNS, Math.max(100, asked));
  const bar = h("div.filters");
  const box = h("ul.rows.list");
  const end = h("div.end");
  root.append(heading("Runs", bar), box, end);
  const refresh = async () => {
    const page = await get("runs", { status, limit: many });
    const counts = page.scope?.runs ?? {};
    swap(
      bar,
      tabs(
        "Status",
        ["", ...RUN_STATUS].map((one) => ({
          words: one || "all",
          count: one
            ? (counts[one] ?? 0)
            : RUN_STATUS.reduce((sum, key) => sum + (counts[key] ?? 0), 0),
          isOn: one === status,
          address: here({ status: one, many: "" }),
          kind: RUN_MARK[one],
        })),
      ),
    );
    reconcile(box, page.runs, (r) => r.name, runRow);
    current(box);
    swap(
      end,
      page.total > page.runs.length && many < MOST_RUNS
        ? h(
            "p.more",
            h("a", { href: here({ many: String(many + 200) }) }, `Show more of ${num(page.total)}`),
          )
        : null,
      page.runs.length
        ? null
        : status
          ? empty(`No run is ${status}`)
          : nothingYet(
              "No runs yet",
              "A run is one long task with checkpoints, steps that are done once, and a budget.",
              'mcp-state runs begin reindex "Reindex the archive" --attempts 400',
            ),
    );
  };
  return { refresh, close() {} };
}

function runDetail(root, of) {
  const refresh = async () => {
    const d = await get("run", { name: of });
    const r = d.run;
    const isOpen = r.status === "open";
    const checkpoints = [...d.checkpoints].sort((a, b) => b.number - a.number);
    const hidden = r.steps - d.steps.length;
    swap(
      root,
      detailHead(
        "run",
        runMark(r),
        r.goal || r.name,
        r.goal ? r.name : "",
        can("raise") && isOpen ? button("Raise the budget", () => raise(r), "small") : null,
      ),
      r.stopped && isOpen
        ? h(
            "p.notice.bad",
            h("strong", `Stopped: the budget of ${r.stopped} is spent. `),
            "Every further step is refused until a person raises it.",
          )
        : null,
      h("div.meters", progress(r), budgets(r)),
      section("Attempts over time", 0, chart(r, d.attempts)),
      runFields(r),
      section(
        "Steps",
        r.steps,
        rows(
          d.steps.map((one) => stepRow(one, isOpen)),
          ".steps",
        ),
        hidden > 0 ? h("p.soft", `${num(hidden)} more: `, command(`mcp-state runs show RUN -n ${r.steps}`)) : null,
      ),
      section("Checkpoints", r.checkpoints, rows(checkpoints.map(checkpointRow))),
      section("Its memory", d.memory.length, rows(d.memory.map(blockRow))),
      folded(
        "events",
        `What happened (${num(d.events.length + d.earlier)})`,
        rows([...d.events].reverse().map(eventRow), ".events"),
        d.earlier ? h("p.soft", `${num(d.earlier)} earlier ones are not shown.`) : null,
      ),
    );
  };
  return { refresh };
}

const runFields = (r) =>
  pairs(
    ["Should lead to", r.expected_outcome && said(r.expected_outcome)],
    ["Next", r.next_action && said(r.next_action)],
    ["Result", r.result && said(r.result)],
    ["Proof", r.evidence && said(r.evidence)],
    ["Looking back", r.reflection && said(r.reflection)],
    ["Thread", r.thread && threadLink(r.thread)],
    ["Tokens", r.tokens_in + r.tokens_out && `${num(r.tokens_in)} in, ${num(r.tokens_out)} out`],
    ["Begun", when(r.created_at)],
    r.finished_at ? ["Ended", when(r.finished_at)] : ["Touched", by(r.touched_by, r.touched_at)],
  );

const STEP_MARK = { done: "done", failed: "dropped", open: "active" };

function stepRow(step, isOpen) {
  const may = can("reset") && isOpen && (step.stopped || step.status !== "open");
  return item(
    h(
      "p.sub",
      step.stopped ? mark("refuted", "stopped") : mark(STEP_MARK[step.status], step.status),
      name(step.name),
      h(
        "span.soft",
        plural(step.attempts, "attempt"),
        step.streak > 1 ? `, ${step.streak} times the same outcome` : "",
        ", ",
        by(step.changed_by, step.changed_at),
      ),
      may
        ? button("Reset", () => reset(step), step.status === "done" ? "small quiet" : "small")
        : null,
    ),
    labelled("input", step.input),
    step.result ? said(step.result, "p", "clamp") : null,
  );
}

function checkpointRow(c) {
  const reached = [c.done, c.total].filter((one) => one !== undefined).map(num);
  const dirty = c.git.dirty_count ? `+${c.git.dirty_count}` : "";
  const head = [c.git.branch, c.git.head?.slice(0, 8), dirty].filter(Boolean).join(" ");
  return item(
    h(
      "p.sub",
      h("strong", c.number),
      reached.length ? h("span", reached.join(" of ")) : null,
      h("span.soft", by(c.actor, c.at)),
      head ? h("code", { title: "Branch, HEAD, and how many files were changed" }, head) : null,
    ),
    said(c.state, "p", "text clamp"),
    labelled("next", c.next_action),
  );
}

const outcomeOf = (attempt) => (attempt.ok === undefined ? "open" : attempt.ok ? "ok" : "failed");

/** Attempts by outcome over time as bars, and above them how much of each budget was used. */
function chart(run, attempts) {
  if (!attempts.length) return h("p.soft", "No attempt yet.");
  const earlier = Math.max(0, run.attempts - attempts.length);
  const begun = Date.parse(earlier ? attempts[0].begun_at : run.created_at);
  const ends = attempts.map((a) => Date.parse(a.ended_at ?? a.begun_at));
  const end = Math.max(...ends, Date.parse(run.finished_at ?? run.created_at), begun + 60_000);
  const [width, height] = phone.matches ? [332, 170] : [640, 190];
  const plot = { left: 34, right: width - 40, top: 12, bottom: height - 22, begun, end };
  plot.x = (at) => plot.left + ((at - begun) / (end - begun)) * (plot.right - plot.left);
  plot.y = (share) => plot.bottom - Math.min(1, share) * (plot.bottom - plot.top);
  const counts = Object.fromEntries(Object.keys(OUTCOME).map((kind) => [kind, 0]));
  for (const attempt of attempts) counts[outcomeOf(attempt)] += 1;
  const kinds = Object.keys(OUTCOME).filter((kind) => counts[kind]);
  const words = kinds.map((kind) => `${num(counts[kind])} ${OUTCOME[kind]}`);
  const lines = budgetLines(plot, run, attempts, earlier);
  const told = `${plural(attempts.length, "attempt")}: ${words.join(", ")}`;
  return h(
    "figure.chart",
    s(
      "svg",
      { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": told },
      axes(plot, lines.length > 0),
      bars(plot, attempts),
      lines.map(([, line]) => line),
    ),
    h(
      "figcaption",
      h(
        "ul.legend",
        kinds.map((kind, n) =>
          legend(
            s("rect", { class: `tally ${kind}`, x: 4, y: 0.5, width: 10, height: 9 }),
            words[n],
          ),
        ),
        lines.map(([kind]) =>
          legend(s("line", { class: `used ${kind}`, x1: 0, y1: 5, x2: 18, y2: 5 }), `${kind} used`),
        ),
      ),
      earlier
        ? h("p.soft", `The last ${num(attempts.length)} of ${num(run.attempts)} attempts.`)
        : null,
    ),
  );
}

const legend = (drawn, words) =>
  h("li", s("svg.swatch", { viewBox: "0 0 18 10", "aria-hidden": "true" }, drawn), words);

function axes({ left, right, bottom, begun, end, y }, hasBudget) {
  const across = (kind, share) =>
    s(`line.${kind}`, { x1: left, y1: y(share), x2: right, y2: y(share) });
  const percent = (share) => s("text", { x: right + 5, y: y(share) + 4 }, `${100 * share}%`);
  return [
    across("axis", 0),
    across("grid", 0.5),
    across("grid", 1),
    hasBudget ? [percent(0.5), percent(1)] : null,
    s("text", { x: left, y: bottom + 17 }, SHORT.format(begun)),
    s("text", { x: right, y: bottom + 17, "text-anchor": "end" }, SHORT.format(end)),
  ];
}

function bars({ left, right, top, bottom, begun, end, y }, attempts) {
  const count = Math.min(phone.matches ? 30 : 48, Math.max(12, Math.ceil(attempts.length / 2)));
  const wide = (right - left) / count;
  const slots = Array.from({ length: count }, () => ({ ok: 0, failed: 0, open: 0 }));
  for (const attempt of attempts) {
    const at = Math.floor(((Date.parse(attempt.begun_at) - begun) / (end - begun)) * count);
    slots[Math.min(count - 1, Math.max(0, at))][outcomeOf(attempt)] += 1;
  }
  const highest = Math.max(...slots.map(sum));
  const drawn = slots.map((slot, n) => {
    let under = 0;
    return Object.keys(slot).map((kind) => {
      if (!slot[kind]) return null;
      under += slot[kind];
      const since = SHORT.format(begun + (n / count) * (end - begun));
      return s(
        "rect",
        {
          class: `tally ${kind}`,
          x: (left + n * wide + 0.8).toFixed(1),
          width: Math.max(1.5, wide - 1.6).toFixed(1),
          y: y(under / highest).toFixed(1),
          height: Math.max(1, (slot[kind] / highest) * (bottom - top) - 0.8).toFixed(1),
        },
        s("title", `${since}: ${slot[kind]} ${OUTCOME[kind]}`),
      );
    });
  });
  const scale = (share, words) =>
    s("text", { x: left - 6, y: y(share) + 4, "text-anchor": "end" }, words);
  return [scale(1, num(highest)), scale(0, "0"), drawn];
}

/** For each budget that there is, how its use grew. */
function budgetLines({ x, y, begun, end }, run, attempts, earlier) {
  const line = (kind, most, first, grows) => {
    let used = first;
    const point = (at) => `${x(at).toFixed(1)},${y(used / most).toFixed(1)}`;
    const points = [point(begun)];
    for (const [at, plus] of grows) {
      points.push(point(at));
      used += plus;
      points.push(point(at));
    }
    points.push(point(end));
    return [kind, s("polyline", { class: `used ${kind}`, points: points.join(" "), fill: "none" })];
  };
  const ended = attempts.filter((a) => a.ended_at).map((a) => [Date.parse(a.ended_at), a.tokens]);
  const before =
    run.tokens_in + run.tokens_out - ended.reduce((all, [, tokens]) => all + tokens, 0);
  const lines = [];
  if (run.max_attempts)
    lines.push(
      line(
        "attempts",
        run.max_attempts,
        earlier,
        attempts.map((a) => [Date.parse(a.begun_at), 1]),
      ),
    );
  if (run.max_tokens)
    lines.push(
      line(
        "tokens",
        run.max_tokens,
        Math.max(0, before),
        ended.sort((a, b) => a[0] - b[0]),
      ),
    );
  if (run.max_minutes) {
    const spent = (at) => (at - Date.parse(run.created_at)) / 60_000 / run.max_minutes;
    const full = Math.min(end, Date.parse(run.created_at) + run.max_minutes * 60_000);
    const ends = { x1: x(begun), y1: y(spent(begun)), x2: x(full), y2: y(spent(full)) };
    lines.push(["minutes", s("line.used.minutes", ends)]);
  }
  return lines;
}

/* ---- Facts ---------------------------------------------------------------------------------- */

function factRow(f) {
  return h(
    "li",
    { class: `fact is-${f.trust}`, "data-item": "" },
    h(
      "p.sub",
      mark(f.trust),
      factLink(f.name),
      f.due ? dueMark(f.recheck_at) : null,
      f.verified ? h("span.ok", "verified") : null,
      h(
        "span.soft",
        f.verified_at
          ? ["checked by ", by(f.verified_by, f.verified_at)]
          : ["never checked, stated ", when(f.stated_at)],
      ),
    ),
    h(
      "p.line",
      h("span.label", "check"),
      " ",
      f.check ? h("code.check", f.check) : h("span.soft", "none: it can never be trusted"),
    ),
    h("p.said", { dir: "auto" }, f.statement),
    f.now && !["unchanged", "there"].includes(f.now.word) ? h("p.soft.warn", f.now.words) : null,
  );
}

function facts(root) {
  const trust = TRUST.includes(route.params.get("trust")) ? route.params.get("trust") : "";
  const due = route.params.get("due") ? "true" : "";
  const bar = h("div.filters");
  const box = h("ul.rows.list");
  root.append(heading("Facts", bar), box);
  const list = feed($("main"), box, {
    page: 60,
    key: (f) => f.name,
    build: factRow,
    fetch: async (cursor, limit) => {
      const page = await get("facts", { trust, due, limit, cursor });
      const counts = page.scope?.facts ?? {};
      swap(
        bar,
        tabs(
          "Trust",
          ["", ...TRUST].map((one) => ({
            words: one || "all",
            count: one
              ? (counts[one] ?? 0)
              : TRUST.reduce((sum, key) => sum + (counts[key] ?? 0), 0),
            isOn: one === trust,
            address: here({ trust: one }),
            kind: one,
          })),
        ),
        toggle("Due only", Boolean(due), here({ due: due ? "" : "1" })),
      );
      return { items: page.facts, next: page.cursor };
    },
    nothing: () =>
      trust || due
        ? empty(`No fact is ${[due && "due", trust].filter(Boolean).join(" and ")}`)
        : nothingYet(
            "No facts yet",
            "A fact is a claim with the check that re-derives it. It becomes trusted when the check held, and falls with what it rests on.",
            'mcp-state facts record tests-pass "The suite is green on main" --check "make test"',
          ),
  });
  return { refresh: () => list.refresh().then(() => current(box)), close: list.close };
}

function factDetail(root, of) {
  const refresh = async () => {
    const d = await get("fact", { name: of });
    const f = d.fact;
    swap(
      root,
      detailHead(
        "fact",
        [
          mark(f.trust),
          f.due ? [" ", dueMark(f.recheck_at)] : null,
          f.verified ? [" ", h("span.ok", "verified")] : null,
        ],
        f.name,
        "",
      ),
      pairs(
        ["Check", f.check ? h("code.check.big", f.check) : "None: it can never be trusted."],
        ["Now", f.now && h("span", { class: `now-${f.now.word}` }, f.now.words)],
        ["Believed", said(f.statement, "span", "statement")],
      ),
      pairs(
        [
          "Last check",
          f.verified_at
            ? [f.held ? "it held: " : "it did not hold: ", by(f.verified_by, f.verified_at)]
            : "never run",
        ],
        ["It said", f.evidence && said(f.evidence)],
        ["Check again", f.recheck_at && when(f.recheck_at)],
        ["Source", f.source && said(f.source)],
        ["Stated", by(f.stated_by, f.stated_at)],
        ["In this state", ["since ", when(f.trust_at)]],
      ),
      d.rests_on_count + d.carries_count
        ? section(
            "Why, and what falls with it",
            0,
            h("p.soft", derivationWords(d)),
            factGraph(d),
            d.rests_on_count > d.rests_on.length || d.carries_count > d.carries.length
              ? h("p.soft", "Of each side, 100 facts are drawn at most.")
              : null,
          )
        : section("Why", 0, h("p.soft", "It rests on its check alone, and nothing rests on it.")),
      section(
        "Threads that rely on it",
        d.threads_count,
        (d.threads ?? []).length
          ? h(
              "ul.rows.tight",
              d.threads.map(([t, status]) =>
                h("li", { "data-item": "" }, mark(status), threadLink(t)),
              ),
            )
          : null,
      ),
      changesOf(`fact:${f.name}`),
    );
  };
  return { refresh };
}

function derivationWords(d) {
  const fallen = (d.carries ?? []).filter((t) => FELL.includes(t.fact.trust)).map((t) => t.fact.name);
  const count = new Set(fallen).size;
  const already = count ? `, ${num(count)} ${count === 1 ? "has" : "have"} fallen already` : "";
  return [
    d.rests_on_count
      ? `It rests on ${plural(d.rests_on_count, "fact")}.`
      : "It rests on its check alone.",
    d.carries_count
      ? `${plural(d.carries_count, "fact rests", "facts rest")} on it: ${num(d.falls_count)} would fall with it${already}.`
      : "Nothing rests on it.",
  ].join(" ");
}

/** The trace as nodes and edges, where the answer has it as a tree. */
function nodesOf(d) {
  const all = new Map([[d.fact.name, { ...d.fact, role: "self" }]]);
  for (const t of d.rests_on ?? [])
    if (!all.has(t.fact.name)) all.set(t.fact.name, { ...t.fact, falls: t.falls, role: "premise" });
  for (const t of d.carries ?? [])
    if (!all.has(t.fact.name)) all.set(t.fact.name, { ...t.fact, falls: t.falls, role: "carried" });
  return [...all.values()];
}

function edgesOf(d) {
  const edges = [];
  const shownFacts = [
    d.fact,
    ...(d.rests_on ?? []).map((t) => t.fact),
    ...(d.carries ?? []).map((t) => t.fact),
  ];
  const known = new Set(shownFacts.map((f) => f.name));
  const told = new Set();
  for (const f of shownFacts) {
    if (told.has(f.name)) continue;
    told.add(f.name);
    (f.reasons ?? []).forEach((premises, n) =>
      premises.forEach(
        (p) =>
          known.has(p.name) &&
          edges.push({ from: p.name, to: f.name, reason: n + 1, replaced: p.replaced }),
      ),
    );
  }
  return edges;
}

const FELL = ["stale", "refuted"];

function factGraph(d) {
  const nodes = nodesOf(d).map((f) => {
    const falls = f.falls && !FELL.includes(f.trust) ? " · falls with it" : "";
    return {
      name: f.name,
      mark: f.trust,
      title: f.name,
      line: f.check || "no check",
      state: `${f.trust}${f.due ? ", due" : ""}${falls}`,
      kind: f.falls ? "falls" : "",
      address: opening("fact", f.name),
      label: `${f.name}: ${f.trust}${f.due ? ", due" : ""}${falls}. Check: ${f.check || "none"}. ${f.statement}`,
    };
  });
  const edges = edgesOf(d).map((edge) => ({
    ...edge,
    isBad: FELL.includes(nodes.find((node) => node.name === edge.from).mark),
    title: `${edge.from} is a reason for ${edge.to}${edge.replaced ? ", but says something else since" : ""}`,
  }));
  return h(
    "figure",
    graph(nodes, edges, d.fact.name, "Derivation: premises above, what rests on them below"),
    h(
      "figcaption",
      h(
        "ul.legend",
        TRUST.filter((one) => nodes.some((node) => node.mark === one)).map((one) =>
          h("li", mark(one)),
        ),
        nodes.some((node) => node.kind)
          ? h("li", h("span.swatch.falls"), "fell, or would fall with this fact")
          : null,
      ),
    ),
  );
}

function threadGraph(found, self) {
  const nodes = found.nodes.map((t) => ({
    name: t.name,
    mark: t.status,
    title: t.title || t.name,
    line: t.title === t.name ? "" : t.name,
    state: t.status,
    kind: "",
    address: opening("thread", t.name),
    label: `${t.title || t.name}: ${t.status}`,
  }));
  const over = new Set(found.nodes.filter((t) => t.status === "done").map((t) => t.name));
  const edges = found.waits.map(([waiting, needed]) => ({
    from: needed,
    to: waiting,
    isBad: false,
    isOver: over.has(needed),
    title: `${waiting} waits for ${needed}`,
  }));
  return h(
    "figure",
    graph(
      nodes,
      edges,
      self,
      "Who waits for whom: what comes first above, what waits for it below",
    ),
    found.more ? h("p.soft", "Further ones are not drawn.") : null,
  );
}

/** Layers of a graph without circles: each node one below the lowest of those that lead to it. */
function layersOf(nodes, above, below) {
  const rank = new Map();
  const left = new Map(nodes.map((node) => [node.name, above.get(node.name).length]));
  const ready = nodes.filter((node) => !left.get(node.name)).map((node) => node.name);
  for (const first of ready) rank.set(first, 0);
  while (ready.length) {
    const at = ready.shift();
    for (const next of below.get(at)) {
      rank.set(next, Math.max(rank.get(next) ?? 0, rank.get(at) + 1));
      left.set(next, left.get(next) - 1);
      if (!left.get(next)) ready.push(next);
    }
  }
  const lowestFirst = [...nodes].sort((a, b) => (rank.get(b.name) ?? 0) - (rank.get(a.name) ?? 0));
  for (const { name: at } of lowestFirst) {
    const under = below.get(at).map((one) => rank.get(one) ?? 0);
    rank.set(at, Math.max(rank.get(at) ?? 0, under.length ? Math.min(...under) - 1 : 0));
  }
  const layers = [];
  for (const node of nodes) (layers[rank.get(node.name)] ??= []).push(node.name);
  return layers.filter(Boolean);
}

/** In each layer the order in which the lines cross least: near the middle of what they lead to. */
function untangle(layers, above, below) {
  const place = new Map();
  const settle = (layer) => layer.forEach((one, n) => place.set(one, n - (layer.length - 1) / 2));
  layers.forEach(settle);
  for (let sweep = 0; sweep < 6; sweep += 1) {
    const [order, near] = sweep % 2 ? [[...layers].reverse(), below] : [layers, above];
    for (const layer of order) {
      const wish = new Map(
        layer.map((one) => {
          const others = near.get(one);
          return [
            one,
            others.length
              ? others.reduce((all, other) => all + place.get(other), 0) / others.length
              : place.get(one),
          ];
        }),
      );
      layer.sort((a, b) => wish.get(a) - wish.get(b));
      settle(layer);
    }
  }
}

/** Nodes are links; edges lead down, into the port of their reason where there are several. */
function graph(nodes, edges, self, label) {
  const known = new Set(nodes.map((node) => node.name));
  const links = edges.filter(
    (edge) => known.has(edge.from) && known.has(edge.to) && edge.from !== edge.to,
  );
  const [above, below] = [new Map(), new Map()];
  for (const node of nodes) [above, below].forEach((side) => side.set(node.name, []));
  const reasons = new Map();
  for (const edge of links) {
    above.get(edge.to).push(edge.from);
    below.get(edge.from).push(edge.to);
    reasons.set(edge.to, Math.max(reasons.get(edge.to) ?? 1, edge.reason ?? 1));
  }
  const layers = layersOf(nodes, above, below);
  untangle(layers, above, below);
  const widest = Math.max(...layers.map((layer) => layer.length));
  const size = { w: 150, h: 66, gap: 14, between: 56 };
  const room = $("detail").clientWidth - 48;
  size.w = Math.max(size.w, Math.min(210, Math.floor((room - size.gap) / widest) - size.gap));
  const W = widest * (size.w + size.gap) + size.gap;
  const H = layers.length * (size.h + size.between) - size.between + 24;
  const box = new Map();
  layers.forEach((layer, row) =>
    layer.forEach((one, n) =>
      box.set(one, {
        x: W / 2 + (n - (layer.length - 1) / 2) * (size.w + size.gap) - size.w / 2,
        y: 12 + row * (size.h + size.between),
      }),
    ),
  );
  const port = (edge) => {
    const { x, y } = box.get(edge.to);
    return [x + (size.w * (edge.reason ?? 1)) / (reasons.get(edge.to) + 1), y];
  };
  const paths = links.map((edge) => {
    const { x, y } = box.get(edge.from);
    const [x1, y1] = [x + size.w / 2, y + size.h];
    const [x2, y2] = port(edge);
    const bend = Math.max(22, (y2 - y1) / 2);
    return s(
      "path",
      {
        class: `edge${edge.isBad ? " bad" : ""}${edge.replaced ? " replaced" : ""}${edge.isOver ? " over" : ""}`,
        d: `M${x1} ${y1}C${x1} ${y1 + bend} ${x2} ${y2 - bend} ${x2} ${y2 - 6}`,
        fill: "none",
      },
      s("title", edge.title),
    );
  });
  const ports = [...new Map(links.map((edge) => [`${edge.reason} ${edge.to}`, edge])).values()].map(
    (edge) => {
      const [x, y] = port(edge);
      if (reasons.get(edge.to) < 2)
        return s("path", {
          class: `port${edge.isOver ? " over" : ""}`,
          d: `M${x - 4} ${y - 7}h8l-4 7z`,
        });
      return s(
        "g.port",
        s("circle", { cx: x, cy: y, r: 8 }),
        s("text", { x, y: y + 3.5, "text-anchor": "middle" }, edge.reason),
        s("title", `Reason ${edge.reason} of ${reasons.get(edge.to)}; each is enough by itself`),
      );
    },
  );
  const fit = (text, room) => {
    const line = clean(text).replace(/\s+/g, " ");
    return line.length > room ? `${line.slice(0, room - 1)}…` : line;
  };
  const drawn = nodes.map((node) => {
    const { x, y } = box.get(node.name);
    return s(
      "a",
      {
        href: node.address,
        class: `node is-${node.mark} ${node.kind}${node.name === self ? " self" : ""}`,
        "aria-label": clean(node.label),
        "aria-current": node.name === self ? "true" : false,
        "data-focus": `node ${node.name}`,
      },
      s("title", node.label),
      s("rect", { x, y, width: size.w, height: size.h, rx: 8 }),
      s("use", {
        href: `#i-${node.mark}`,
        x: x + 10,
        y: y + 9,
        width: 15,
        height: 15,
        class: "shape",
      }),
      s("text.name", { x: x + 31, y: y + 21 }, fit(node.title, Math.floor((size.w - 40) / 6.7))),
      s("text.mono", { x: x + 11, y: y + 40 }, fit(node.line, Math.floor((size.w - 20) / 6.7))),
      s("text.state", { x: x + 11, y: y + 56 }, node.state),
    );
  });
  const view = h(
    "div.graph",
    { tabindex: "0", role: "group", "aria-label": label },
    s("svg", { viewBox: `0 0 ${W} ${H}`, width: W, height: H }, paths, drawn, ports),
  );
  requestAnimationFrame(() => {
    view.scrollLeft = box.get(self).x + size.w / 2 - view.clientWidth / 2;
  });
  return view;
}

/* ---- Memory --------------------------------------------------------------------------------- */

function sizeOf({ value, limit }) {
  const size = [...value].length;
  const kind = size > limit ? "spent" : size > 0.9 * limit ? "near" : "budget";
  return meter("size", size, limit, kind);
}

function blockRow(b) {
  return h(
    "li.block",
    { "data-item": "" },
    h(
      "p.sub",
      h("a.ref", { href: opening("block", b.key, { of: b.run }) }, name(b.key)),
      b.locked ? h("span.held", icon("lock"), "locked: ", name(b.locked, "")) : null,
      h(
        "span.soft",
        `version ${b.version}, `,
        by(b.changed_by, b.changed_at),
        b.expires_at ? [", expires ", when(b.expires_at)] : null,
      ),
    ),
    h("p.said.clamp.two", { dir: "auto" }, b.value.trim().replace(/\n\s*\n/g, "\n") || "(empty)"),
    sizeOf(b),
  );
}

function memory(root) {
  const run = route.params.get("run") ?? "";
  const bar = h("div.filters");
  const box = h("ul.rows.list");
  const end = h("div.end");
  root.append(heading("Memory", bar), box, end);
  const refresh = async () => {
    const [page, all] = await Promise.all([get("memory", { run }), get("runs", { limit: 100 })]);
    const names = all.runs.map((r) => r.name);
    if (run && !names.includes(run)) names.unshift(run);
    swap(
      bar,
      names.length
        ? h(
            "label.field",
            h("span", "Of"),
            h(
              "select",
              {
                id: "memory-of",
                onchange: (event) => go(here({ run: event.target.value, ...DETAILED })),
              },
              h("option", { value: "" }, "the project"),
              names.map((one) => h("option", { value: one, selected: one === run }, `run ${one}`)),
            ),
          )
        : null,
    );
    reconcile(box, page.blocks, (b) => b.key, blockRow);
    current(box);
    swap(
      end,
      page.count > page.blocks.length
        ? h("p.soft", `${num(page.count - page.blocks.length)} more: `, command("mcp-state memory"))
        : null,
      page.blocks.length
        ? null
        : run
          ? empty("This run keeps no memory of its own")
          : nothingYet(
              "Working memory is empty",
              "It holds named texts that an agent wants to find again after its context is gone: a plan, what it knows.",
              'mcp-state memory set plan "1. reproduce  2. fix  3. test"',
            ),
    );
  };
  return { refresh, close() {} };
}

function blockDetail(root, of) {
  const { params } = route;
  const run = params.get("of") ?? "";
  const at = { key: of, run };
  const orProblem = (asked) => asked.catch((problem) => ({ problem }));
  const refresh = async () => {
    const { versions } = await get("versions", at);
    const kept = versions.filter((v) => v.size !== undefined);
    const right = Number(params.get("right")) || kept[0]?.version;
    const left = Number(params.get("left")) || kept.find((v) => v.version < right)?.version;
    const take = (version) => (version ? orProblem(get("block", { ...at, version })) : null);
    const asked = [orProblem(get("block", at)), take(left), take(right)];
    const [block, one, other] = await Promise.all(asked);
    const isHere = block.value !== undefined;
    const state = block.locked
      ? mark("lock", "locked")
      : isHere
        ? mark("done", "current")
        : mark("dropped", "not there now");
    swap(
      root,
      detailHead(
        "block",
        state,
        of,
        run ? `of the run ${run}` : "",
        isHere && !block.locked && can("lock")
          ? button("Lock", () => lock(of, run), "small")
          : null,
        block.locked && can("unlock")
          ? button("Unlock", () => unlock(of, run, block.locked), "small")
          : null,
      ),
      block.locked
        ? h(
            "p.notice",
            icon("lock"),
            h("strong", " Locked, agents can't change it: "),
            said(block.locked),
          )
        : null,
      block.problem ? refused(block.problem) : null,
      isHere ? blockNow(block) : null,
      left && right
        ? section(
            "Versions side by side",
            kept.length,
            h(
              "div.filters",
              versionChoice("left", kept, { left, right }),
              versionChoice("right", kept, { left, right }),
            ),
            one.problem || other.problem
              ? refused(one.problem ?? other.problem)
              : sideBySide(one, other),
          )
        : h("p.soft", "There is one version so far; the next will stand beside it."),
      section(
        "Its history",
        versions.length,
        rows(
          versions.map((v) => versionRow(v, kept, right)),
          ".events",
        ),
      ),
    );
  };
  return { refresh };
}

function blockNow(block) {
  return [
    sizeOf(block),
    h(
      "p.soft",
      `Version ${block.version}, `,
      by(block.changed_by, block.changed_at),
      block.expires_at ? [", expires ", when(block.expires_at)] : null,
    ),
    said(block.value, "pre", "value"),
  ];
}

function versionChoice(side, kept, chosen) {
  const change = (event) => go(here({ ...chosen, [side]: event.target.value }));
  return h(
    "label.field",
    h("span", side === "left" ? "Before" : "After"),
    h(
      "select",
      { id: `version-${side}`, onchange: change },
      kept.map(({ version }) =>
        h("option", { value: version, selected: version === chosen[side] }, `version ${version}`),
      ),
    ),
  );
}

const versionRow = (v, kept, right) =>
  item(
    h("span.kind", `v${v.version}`),
    h("span.what.said", { dir: "auto" }, v.summary || v.operation),
    h("span.soft", by(v.actor, v.at)),
    v.version !== right && v.size !== undefined
      ? h("a.small", { href: here({ left: v.version, right: kept[0].version }) }, "compare")
      : null,
  );

/** What two lists have in common: pairs of positions, in order. */
function common(a, b) {
  if (a.length * b.length > 4_000_000) return [];
  const wide = b.length + 1;
  const table = new Uint32Array((a.length + 1) * wide);
  for (let i = a.length - 1; i >= 0; i -= 1) {
    for (let j = b.length - 1; j >= 0; j -= 1) {
      table[i * wide + j] =
        a[i] === b[j]
          ? table[(i + 1) * wide + j + 1] + 1
          : Math.max(table[(i + 1) * wide + j], table[i * wide + j + 1]);
    }
  }
  const found = [];
  for (let i = 0, j = 0; i < a.length && j < b.length;) {
    if (a[i] === b[j]) found.push([i++, j++]);
    else if (table[(i + 1) * wide + j] >= table[i * wide + j + 1]) i += 1;
    else j += 1;
  }
  return found;
}

/** Two lines with the words that differ marked. */
function wordsApart(before, after) {
  const cut = (line) => line.match(/\s+|[\p{L}\p{N}_]+|[^\s\p{L}\p{N}_]/gu) ?? [];
  const [a, b] = [cut(before), cut(after)];
  const same = common(a, b);
  const render = (words, kept, tag) => {
    const parts = [];
    words.forEach((word, n) => {
      const isKept = kept.has(n);
      if (parts.length && parts.at(-1).isKept === isKept) parts.at(-1).text += word;
      else parts.push({ isKept, text: word });
    });
    return parts.map((part) => (part.isKept ? part.text : h(tag, part.text)));
  };
  return [
    render(a, new Set(same.map(([i]) => i)), "del"),
    render(b, new Set(same.map(([, j]) => j)), "ins"),
  ];
}

/** How much two lines have in common, from 0 to 1. */
function likeness(before, after) {
  const words = (line) => line.match(/[\p{L}\p{N}_]+/gu) ?? [];
  const [a, b] = [words(before), words(after)];
  return a.length + b.length
    ? (2 * common(a, b).length) / (a.length + b.length)
    : Number(before === after);
}

/** The lines of two texts side by side: the same, edited, gone or new. */
function beside(a, b) {
  const rows = [];
  const gone = (i) => rows.push({ kind: "gone", n: i + 1, left: [h("del", a[i] || " ")] });
  const fresh = (j) => rows.push({ kind: "new", m: j + 1, right: [h("ins", b[j] || " ")] });
  let [i, j] = [0, 0];
  for (const [x, y] of [...common(a, b), [a.length, b.length]]) {
    const isSmall = (x - i) * (y - j) < 2500;
    for (; i < x; i += 1) {
      let like = -1;
      for (let at = j; isSmall && at < y && like < 0; at += 1)
        if (likeness(a[i], b[at]) >= 0.5) like = at;
      if (like < 0) gone(i);
      else {
        while (j < like) fresh(j++);
        const [left, right] = wordsApart(a[i], b[j]);
        rows.push({ kind: "edit", n: i + 1, left, m: j + 1, right });
        j += 1;
      }
    }
    while (j < y) fresh(j++);
    if (x < a.length) rows.push({ kind: "same", n: x + 1, left: [a[x]], m: y + 1, right: [b[y]] });
    [i, j] = [x + 1, y + 1];
  }
  return rows;
}

function sideBySide(one, other) {
  const rows = beside(one.value.split("\n"), other.value.split("\n"));
  const isNear = (n) => rows.slice(Math.max(0, n - 3), n + 4).some((row) => row.kind !== "same");
  const kept = rows
    .map((row, n) => (rows.length < 30 || isNear(n) ? row : null))
    .filter((row, n, all) => row || all[n - 1]);
  const side = (block) =>
    h(
      "th",
      { scope: "colgroup", colspan: "2" },
      `version ${block.version} `,
      h("span.soft", by(block.changed_by, block.changed_at)),
    );
  const cell = (number, words, kind) => [
    h("td.n", number ?? ""),
    h("td", { class: `side ${words ? kind : "void"}`, dir: "auto" }, words ?? ""),
  ];
  return h(
    "div.diff",
    {
      tabindex: "0",
      role: "group",
      "aria-label": `Version ${one.version} beside version ${other.version}`,
    },
    rows.every((row) => row.kind === "same") ? h("p.soft", "The two versions are the same.") : null,
    h(
      "table",
      [1, 2].map(() => h("colgroup", h("col.n"), h("col"))),
      h("thead", h("tr", side(one), side(other))),
      h(
        "tbody",
        kept.map((row) =>
          row
            ? h(
                "tr",
                cell(row.n, row.left, row.kind),
                cell(row.m, row.right, row.kind === "edit" ? "edited" : row.kind),
              )
            : h("tr.skip", h("td", { colspan: "4" }, "⋯ the same")),
        ),
      ),
    ),
  );
}

/* ---- Changes and search --------------------------------------------------------------------- */

function changesOf(subject) {
  const box = h("ul.rows.events");
  const details = folded("history", "What changed, by whom", box);
  details.addEventListener("toggle", async () => {
    if (!details.open) return;
    try {
      const page = await get("history", { subject, limit: 100 });
      box.replaceChildren(...[...page.events].reverse().map(eventRow));
    } catch (problem) {
      box.replaceChildren(refused(problem));
    }
  });
  return details;
}

function changes(root) {
  const subject = route.params.get("subject") ?? "";
  const form = h(
    "form.filters.fields",
    {
      onsubmit: (event) => {
        event.preventDefault();
        go(here({ subject: String(new FormData(event.target).get("subject")).trim() }));
      },
    },
    h(
      "label",
      h("span", "Of"),
      h("input", {
        name: "subject",
        value: subject,
        placeholder: "everything, or thread:NAME",
        autocomplete: "off",
        spellcheck: "false",
        maxlength: "160",
      }),
    ),
    h("button", { type: "submit" }, "Filter"),
    subject ? h("a.clear", { href: to("changes") }, "clear") : null,
  );
  const box = h("ul.rows.list.events");
  root.append(heading("Changes", form, purgeButton()), box);
  return feed($("main"), box, {
    page: 60,
    key: (e) => String(e.seq),
    build: (e) => {
      const row = eventRow(e);
      row.prepend(h("span.num.seq", num(e.seq)));
      if (e.row) row.append(folded("row", "row", h("pre.value", JSON.stringify(e.row, null, 2))));
      return row;
    },
    fetch: async (cursor, limit) => {
      if (subject) {
        const page = await get("history", { subject, limit: 200 });
        return { items: [...page.events].reverse(), next: "" };
      }
      const last = cursor ? Number(cursor) : ((await get("overview")).scope.event ?? 0);
      if (!last) return { items: [], next: "" };
      const since = Math.max(0, last - limit);
      const page = await get("history", { since: String(since), limit: last - since });
      return {
        items: [...page.events].filter((e) => e.seq <= last).reverse(),
        next: since ? String(since) : "",
      };
    },
    nothing: () =>
      empty(subject ? `Nothing is known of ${clean(subject)}` : "Nothing has changed yet"),
  });
}

const KINDS = ["thread", "journal", "fact", "memory", "run", "blob"];

function search(root) {
  const query = route.params.get("query") ?? "";
  const kinds = route.params.get("kinds") ?? "";
  const told = h("p.soft", { role: "status" });
  const box = h("ul.rows.list");
  root.append(
    heading(
      "Search",
      h(
        "div.filters",
        tabs(
          "Kind",
          ["", ...KINDS].map((one) => ({
            words: one || "all",
            isOn: one === kinds,
            address: here({ kinds: one }),
          })),
        ),
      ),
    ),
    told,
    box,
  );
  if (!query.trim()) {
    root.append(
      empty(
        "Search everything of this project",
        "Type words at the top; press / to get there. Threads, journal, facts, memory, runs and summaries of blobs are searched.",
      ),
    );
    return { refresh: async () => {}, close() {} };
  }
  const terms = query.toLowerCase().split(/\s+/).filter(Boolean);
  return feed($("main"), box, {
    page: 30,
    key: (hit) => `${hit.kind} ${hit.run ?? ""} ${hit.name} ${hit.seq}`,
    build: (hit) =>
      hit.fact
        ? factRow(hit.fact)
        : h(
            "li",
            { "data-item": "" },
            h(
              "p.sub",
              h("span.chip.kind", hit.kind === "memory" ? "memory" : hit.kind),
              subjectLink(hit.kind, hit.name, hit.run),
              h("span.soft", by(hit.actor, hit.at)),
            ),
            h("p.said", { dir: "auto" }, marked(hit.snippet, terms)),
            hit.kind === "blob" ? folded(`blob ${hit.name}`, "Read", blobReader(hit.name)) : null,
          ),
    fetch: async (cursor, limit) => {
      const page = await get("search", { query, kinds, limit: Math.min(limit, 50), cursor });
      if (!cursor) {
        told.replaceChildren(
          page.hits.length
            ? `${page.capped ? "More than " : ""}${plural(page.matches, "match", "matches")}${page.loose ? "; nothing holds all the words, these hold some of them" : ""}`
            : "",
        );
      }
      return { items: page.hits, next: page.cursor };
    },
    nothing: () => empty("Nothing holds these words", "Try fewer of them, or parts of words."),
  });
}

function marked(text, terms) {
  const shownText = clean(text);
  const found = terms.map((term) => term.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  if (!found.length) return shownText;
  const parts = shownText.split(new RegExp(`(${found.join("|")})`, "gi"));
  return parts.map((part, n) => (n % 2 ? h("mark", part) : part));
}

function blobReader(key) {
  const box = h("div");
  let offset = 0;
  const more = async () => {
    try {
      const page = await get("blob", { key, offset, limit: 8000 });
      box.append(h("pre.value", page.text));
      offset += [...page.text].length;
      next.hidden = !page.more;
      next.textContent = `Show more of ${num(page.more)} characters`;
    } catch (problem) {
      box.append(refused(problem));
      next.hidden = true;
    }
  };
  const next = button("Show it", more, "small");
  return [box, next];
}

/* ---- A thread ------------------------------------------------------------------------------- */

function detailHead(kind, state, title, sub, ...deeds) {
  return h(
    "header.head",
    h(
      "div",
      h("p.sub", h("span.kind", kind), state),
      h("h2", { id: "detail-title", tabindex: "-1", dir: "auto" }, title),
      sub ? h("p.sub", name(sub)) : null,
    ),
    deeds.some(Boolean) ? h("div.deeds", deeds) : null,
    h(
      "a.quiet.close",
      { href: closing(), id: "close", title: "Close (Esc)" },
      icon("close"),
      h("span.unseen", "Close"),
    ),
  );
}

function threadDetail(root, of) {
  const refresh = async () => {
    const d = await get("thread", { name: of });
    const t = d.thread;
    const entries = [...d.journal].reverse();
    const state = [
      mark(t.status),
      t.due ? dueMark(t.recheck_at) : null,
      t.priority !== 5 ? h("span", { class: `prio p${t.priority}` }, `P${t.priority}`) : null,
    ];
    swap(
      root,
      detailHead("thread", state, t.title || t.name, t.title === t.name ? "" : t.name),
      t.lease ? leaseOf(t) : null,
      pairs(
        [t.status === "blocked" ? "Waits for" : "Waiting on", t.waiting_on && said(t.waiting_on)],
        ["Next", t.next_action && said(t.next_action)],
        ["Check", t.check && h("code.check.big", t.check)],
        ["Look again", t.recheck_at && when(t.recheck_at)],
        ["Proof", t.evidence && said(t.evidence)],
        ["Note", t.note && said(t.note)],
      ),
      whoWaits(d.graph, t.name),
      section(
        `Done when (${t.passing}/${t.criteria} pass)`,
        0,
        d.criteria.length ? h("ol.criteria", d.criteria.map(criterionRow)) : null,
      ),
      section(
        "Relies on",
        t.relies_on.length,
        rows(d.facts.length ? d.facts.map(factRow) : t.relies_on.map(premiseRow)),
      ),
      section("Where the work is", 0, rows(t.places.map(placeRow), ".tight")),
      section(
        "Last journal entries",
        0,
        entries.length
          ? [
              h("div.timeline.in", entries.map(entry)),
              source.views.includes("journal")
                ? h(
                    "p.more",
                    h("a", { href: to("journal", { thread: t.name }) }, "all of this thread"),
                  )
                : null,
            ]
          : null,
      ),
      section(
        "How it got here",
        0,
        rows([...d.history].reverse().map(changeRow), ".events"),
        d.earlier
          ? h(
              "p.soft",
              `${num(d.earlier)} earlier ones: `,
              linked("history", "", to("changes", { subject: `thread:${t.name}` }), "all changes"),
            )
          : null,
      ),
      pairs(
        ["Made", when(t.created_at)],
        ["Changed", by(t.changed_by, t.changed_at)],
        ["Version", t.version],
      ),
    );
  };
  return { refresh };
}

const leaseOf = (t) =>
  h(
    "p.notice",
    icon("lock"),
    " Held by ",
    who(t.lease.holder),
    ", ends ",
    when(t.lease.until),
    " ",
    can("release") ? button("Break the lease", () => release(t), "small") : null,
  );

function whoWaits(around, of) {
  const known = new Map(around.nodes.map((node) => [node.name, node]));
  const side = (title, names) =>
    h(
      "div",
      h("h4", title),
      rows(
        names.map((one) => {
          const { status, title: words } = known.get(one);
          return item(mark(status), threadLink(one, words || one));
        }),
        ".tight",
      ) ?? h("p.soft", "nothing"),
    );
  if (!around.waits.length) return null;
  const needs = around.waits.filter(([waiting]) => waiting === of).map(([, needed]) => needed);
  const neededBy = around.waits.filter(([, needed]) => needed === of).map(([waiting]) => waiting);
  return h(
    "section",
    h("h3", "Who waits for whom"),
    h("div.chain", side("It waits for", needs), side("These wait for it", neededBy)),
    around.nodes.length > 2 ? threadGraph(around, of) : null,
  );
}

const criterionRow = (c) =>
  h(
    "li",
    mark(c.passes ? "done" : "provisional", c.passes ? "passes" : "not yet"),
    said(c.text),
    c.checked_at ? h("p.soft", said(c.evidence), c.evidence ? " · " : null, by(c.checked_by, c.checked_at)) : null,
  );

const premiseRow = (p) => item(mark(p.trust), factLink(p.name), h("code.check", p.check));

const placeRow = (p) =>
  h("li", h("span.chip", p.role), said(p.path_or_repo, "code"), said(p.note, "span", "soft"));

const changeRow = (e) =>
  item(
    h("span.what.said", { dir: "auto" }, e.summary || e.operation),
    h("span.soft", by(e.actor, e.at)),
  );

/* ---- What people do --------------------------------------------------------------------------- */

const can = (deed) => seen.deeds.includes(deed);

/** Ask in a dialog, then do it. `fields`: name, label, and what an input takes. */
function ask({ title, tells, fields = [], verb, isGrave = false, send, then }) {
  const dialog = $("dialog");
  const told = h("div");
  const submit = h("button", { type: "submit", class: isGrave ? "grave" : "main" }, verb);
  const form = h(
    "form",
    {
      method: "dialog",
      onsubmit: async (event) => {
        event.preventDefault();
        submit.disabled = true;
        told.replaceChildren();
        const given = Object.fromEntries(
          [...new FormData(form)].map(([key, value]) => [key, String(value).trim()]),
        );
        try {
          const answer = await send(given);
          if (then) then(answer);
          else dialog.close();
          again();
        } catch (problem) {
          heard(problem);
          told.replaceChildren(refused(problem));
        } finally {
          submit.disabled = false;
        }
      },
    },
    h("h2", { id: "dialog-title" }, title),
    tells,
    fields.map(({ label, hint, ...field }) =>
      h(
        "label",
        { class: field.type === "checkbox" ? "field" : "field tall" },
        h("span", label),
        h("input", { autocomplete: "off", ...field }),
        hint ? h("small", hint) : null,
      ),
    ),
    told,
    h(
      "div.buttons",
      button("Cancel", () => dialog.close()),
      submit,
    ),
  );
  dialog.replaceChildren(form);
  if (!dialog.open) {
    const back = document.activeElement;
    dialog.showModal();
    dialog.addEventListener(
      "close",
      () => (back?.isConnected ? back : $("detail-title"))?.focus(),
      {
        once: true,
      },
    );
  }
  (form.querySelector("input") ?? submit).focus();
}

const p = (...words) => h("p", words);
const act = (deed, body) =>
  source.do(deed, { project: route.project || seen.scope?.project, ...body });
const REASON = {
  name: "reason",
  label: "Reason",
  required: true,
  maxlength: "300",
  hint: "Kept in the history, and told to the agents.",
};

function lock(key, run) {
  ask({
    title: `Lock ${clean(key)}?`,
    tells: p(
      "Agents that try to change it are refused and read your reason, until a person unlocks it.",
    ),
    fields: [REASON],
    verb: "Lock",
    send: ({ reason }) => act("lock", { key, run, reason }),
  });
}

function unlock(key, run, reason) {
  ask({
    title: `Unlock ${clean(key)}?`,
    tells: p("It was locked because: ", said(reason), " Agents can change it again."),
    verb: "Unlock",
    send: () => act("unlock", { key, run }),
  });
}

function release(t) {
  ask({
    title: `Break the lease on ${clean(t.name)}?`,
    tells: p(
      who(t.lease.holder),
      " holds it, ends ",
      when(t.lease.until),
      ". Its next write is refused with lease_lost, and anybody can claim the thread. What it did outside is not undone.",
    ),
    verb: "Break it",
    isGrave: true,
    send: () => act("release", { thread: t.name, lease_token: t.lease.token }),
  });
}

function raise(r) {
  const number = (key, label, most, used) => ({
    name: key,
    label,
    type: "number",
    min: "1",
    step: "1",
    value: most,
    hint: `${num(used)} used${most ? ` of ${num(most)}` : ", no budget now"}`,
  });
  ask({
    title: `Raise the budget of ${clean(r.name)}`,
    tells: p(
      "Each number is the new maximum, not what is added. A thread that was blocked because the budget was spent becomes active again.",
    ),
    fields: [
      number("attempts", "Attempts", r.max_attempts, r.attempts),
      number("minutes", "Minutes from the beginning", r.max_minutes, r.minutes),
      number("tokens", "Tokens, in and out", r.max_tokens, r.tokens_in + r.tokens_out),
      REASON,
    ],
    verb: "Raise",
    send: (given) => {
      const was = { attempts: r.max_attempts, minutes: r.max_minutes, tokens: r.max_tokens };
      const body = { run: r.name, reason: given.reason };
      for (const key of Object.keys(was))
        if (given[key] && Number(given[key]) !== was[key]) body[key] = Number(given[key]);
      return act("raise", body);
    },
  });
}

function reset(step) {
  ask({
    title: `Let ${clean(step.name)} be tried again?`,
    tells: p(
      `The step of ${clean(step.run)} is ${step.stopped ? "stopped" : step.status} after ${plural(step.attempts, "attempt")}. Its count of equal outcomes begins anew; the attempts stay in the record and count for the budget.`,
    ),
    fields: [REASON],
    verb: "Reset",
    send: ({ reason }) => act("reset", { run: step.run, step: step.name, reason }),
  });
}

/** Removing a text for good is asked twice: first where it is, then whether. */
const purgeButton = () => (can("purge") ? button("Remove a text for good…", purge, "small") : null);

function purge() {
  const hint = "At least 4 characters; upper and lower case make no difference.";
  const text = {
    name: "text",
    label: "The text",
    type: "password",
    required: true,
    minlength: "4",
    hint,
  };
  const all = { name: "every_project", type: "checkbox", label: "In every project of this store" };
  ask({
    title: "Remove a text for good",
    tells: p(
      "A password that got in, say. First it is looked for wherever it ever was: rows, versions, the history, the search index, the files themselves. Nothing is removed yet.",
    ),
    fields: [text, all],
    verb: "Look for it",
    send: async (given) => {
      const body = { text: given.text, every_project: given.every_project === "on" };
      return { ...(await act("purge", body)), body };
    },
    then: ({ done, more, confirm, body }) => {
      if (done.clean)
        tell("It is nowhere", [p("Nothing that is kept here holds this text."), notes(done)]);
      else confirmPurge(done, more, { ...body, confirm });
    },
  });
}

function confirmPurge(found, more, body) {
  const count = found.places.length + more;
  const place = (one) => {
    const where = `${one.fields.join(", ")}: ${num(one.count)}${body.every_project ? `, in ${one.project}` : ""}`;
    return h("li", name(one.subject), h("span.soft", ` ${where}`));
  };
  const files = found.files.filter((file) => file.found);
  ask({
    title: count
      ? `Remove it from ${plural(count, "place")} for good?`
      : "Remove what the files still hold of it?",
    tells: [
      h(
        "ul.places",
        found.places.map(place),
        more ? h("li", `${num(more)} more`) : null,
        files.map((file) => h("li", `${file.what}: `, h("code", file.path))),
      ),
      notes(found),
      p(
        "This can't be undone, but a backup that was made before still has it. The history will say that something was removed, when, by whom and why.",
      ),
    ],
    fields: [{ ...REASON, hint: "Kept in the history. Don't repeat the text." }],
    verb: "Remove for good",
    isGrave: true,
    send: ({ reason }) => act("purge", { ...body, reason }),
    then: ({ done }) =>
      tell(done.clean ? "Removed" : "Removed, but not everywhere", [
        p(
          done.event
            ? `It is gone from what is kept here; event ${num(done.event)} tells of it.`
            : "The files hold it no more.",
        ),
        notes(done),
      ]),
  });
}

const notes = (done) => [
  done.elsewhere ? p("Another project of this store holds it too.") : null,
  done.notes.map((note) => p(note)),
];

function tell(title, words) {
  const close = h("button.main", "Close");
  $("dialog").replaceChildren(
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, title),
      words,
      h("div.buttons", close),
    ),
  );
  close.focus();
}

/* ---- The page ------------------------------------------------------------------------------- */

const sum = (counts) => Object.values(counts ?? {}).reduce((all, one) => all + one, 0);

/** What the page can show, in this order; `needs` is what the source must be able to answer. */
const VIEWS = [
  { id: "now", needs: "overview", title: "Now", draw: overview },
  {
    id: "board",
    needs: "threads",
    title: "Board",
    draw: board,
    count: (scope) =>
      sum(
        Object.fromEntries(
          STATUS.filter(isOpenStatus).map((one) => [one, scope.threads?.[one] ?? 0]),
        ),
      ),
  },
  {
    id: "journal",
    needs: "journal",
    title: "Journal",
    draw: journal,
    count: (scope) => scope.journal,
  },
  {
    id: "runs",
    needs: "runs",
    title: "Runs",
    draw: runs,
    isSplit: true,
    count: (scope) => sum(scope.runs),
  },
  {
    id: "facts",
    needs: "facts",
    title: "Facts",
    draw: facts,
    isSplit: true,
    count: (scope) => sum(scope.facts),
  },
  {
    id: "memory",
    needs: "memory",
    title: "Memory",
    draw: memory,
    isSplit: true,
    count: (scope) => scope.memory,
  },
  {
    id: "changes",
    needs: "history",
    title: "Changes",
    draw: changes,
    count: (scope) => scope.event,
  },
  { id: "search", needs: "search", title: "Search", draw: search, isUnlisted: true },
];
const DETAILS = new Map([
  ["thread", threadDetail],
  ["run", runDetail],
  ["fact", factDetail],
  ["block", blockDetail],
]);

const seen = {
  scope: null,
  deeds: [],
  root: null,
  view: null,
  viewKey: "",
  detail: null,
  detailKey: "",
  back: null,
};
const phone = matchMedia("(max-width: 700px)");
const source = globalThis.boardSource ?? serverSource();

function shown() {
  return VIEWS.filter((view) => source.views.includes(view.needs));
}

function go(address) {
  if (location.hash === address) arrive();
  else location.hash = address;
}

/** What failed to reach the source shows at the top, whatever else says so. */
function heard(problem) {
  if (problem instanceof Lost) lose();
}

function lose() {
  const lost = $("lost");
  document.body.classList.add("is-lost");
  if (!lost.hidden) return;
  lost.replaceChildren(
    h("strong", "Connection lost."),
    " What you see may be old. If mcp-state web has ended, start it again and open the address that it prints. ",
    button(
      "Try again",
      () => {
        stream?.again?.();
        again();
      },
      "small",
    ),
  );
  lost.hidden = false;
  tellLink();
}

function find() {
  if ($("lost").hidden) return;
  $("lost").hidden = true;
  document.body.classList.remove("is-lost");
  tellLink();
}

function tellLink() {
  const isLost = !$("lost").hidden;
  if (source.isLive || isLost) swap($("link"), h("span.dot"), isLost ? "not connected" : "live");
  else
    swap(
      $("link"),
      "as of ",
      when(seen.asOf),
      " ",
      button("Refresh", () => again(), "small"),
    );
}

function tellScope(scope, at) {
  seen.scope = scope;
  seen.asOf = at;
  pace.event ??= scope.event ?? null;
  if (!source.isLive) tellLink();
  swap(
    $("scope"),
    h("span", { title: `Found ${clean(scope.how ?? "")}` }, name(scope.project ?? "")),
    scope.event === undefined ? null : ` · event ${num(scope.event)}`,
  );
  for (const view of shown()) {
    const count = $(`count-${view.id}`);
    if (count && view.count) {
      const value = view.count(scope);
      count.textContent = value ? short(value) : "";
    }
  }
  const select = $("project");
  if (!route.project && select.value !== scope.project) select.value = scope.project;
}

function drawNav() {
  const listed = shown().filter((view) => !view.isUnlisted);
  $("views").hidden = listed.length < 2;
  swap(
    $("views"),
    listed.map((view, n) =>
      h(
        "a",
        { href: to(view.id), id: `go-${view.id}`, title: `${view.title} (${n + 1})` },
        icon(view.id, "icon big"),
        h("span.words", view.title),
        view.count ? h("span.count", { id: `count-${view.id}` }) : null,
      ),
    ),
  );
}

async function drawProjects() {
  const answer = await get("projects");
  seen.deeds = answer.deeds ?? [];
  const names = answer.projects.map((project) => project.name);
  const chosen = route.project || answer.default?.project || "";
  if (chosen && !names.includes(chosen)) names.unshift(chosen);
  swap(
    $("project"),
    chosen ? null : h("option", { value: "", selected: true }, "choose a project"),
    names.map((one) => h("option", { value: one, selected: one === chosen }, one)),
  );
}

/** Mark in a list what the detail shows. */
function current(box) {
  for (const link of box.querySelectorAll("[data-item]")) {
    const first = link.querySelector("a");
    const isIt =
      Boolean(route.open) &&
      first?.getAttribute("href") ===
        (route.open.kind === "block"
          ? opening("block", route.open.name, { of: route.params.get("of") })
          : opening(route.open.kind, route.open.name));
    link.classList.toggle("current", isIt);
  }
}

const loaded = async (part, box) => {
  try {
    await part.refresh();
    box.querySelector(":scope > .notice.bad.whole")?.remove();
  } catch (problem) {
    heard(problem);
    if (box.querySelector(":scope > .loading")) box.replaceChildren();
    box.querySelector(":scope > .notice.whole")?.remove();
    const told = refused(problem, again);
    told.classList.add("whole");
    box.append(told);
  }
};

/** Show what the address says; what is there already stays. */
async function arrive() {
  const was = route.project;
  readRoute();
  drawNav();
  if (was !== route.project && seen.viewKey) {
    pace.event = null;
    stream?.again?.();
    drawProjects().catch(heard);
  }
  const view = shown().find((one) => one.id === route.view);
  const kept = new URLSearchParams(route.params);
  for (const key of Object.keys(DETAILED)) kept.delete(key);
  const viewKey = `${view.id}?${kept}`;
  const detailKey = route.open
    ? [
        route.open.kind,
        route.open.name,
        route.params.get("of"),
        route.params.get("left"),
        route.params.get("right"),
        route.project,
      ].join("\n")
    : "";
  const isSplit = Boolean(view.isSplit);
  document.body.dataset.view = view.id;
  document.body.dataset.shape = !route.open ? "plain" : isSplit ? "split" : "drawer";
  document.title = `${[route.open?.name, view.title].filter(Boolean).map(clean).join(" · ")} · mcp-state`;
  for (const link of $("views").children) link.toggleAttribute("aria-current", false);
  $(`go-${view.id}`)?.setAttribute("aria-current", "page");
  if (view.id === "search") $("query").value = route.params.get("query") ?? "";
  const work = [];
  if (viewKey !== seen.viewKey) {
    seen.view?.close();
    seen.viewKey = viewKey;
    seen.root = h("div.view");
    $("main").replaceChildren(seen.root);
    $("main").scrollTop = 0;
    seen.view = view.draw(seen.root);
    work.push(
      loaded(seen.view, seen.root).then(() => {
        const open = $("main").querySelector(".current, .card:has(.cover[aria-current])");
        open?.scrollIntoView({ block: "nearest" });
      }),
    );
  } else {
    for (const link of $("main").querySelectorAll("a.cover")) link.removeAttribute("aria-current");
    current($("main"));
  }
  work.push(arriveAt(detailKey));
  await Promise.all(work);
  document.body.dataset.ready = String(Number(document.body.dataset.ready ?? 0) + 1);
}

async function arriveAt(detailKey) {
  const aside = $("detail");
  if (detailKey === seen.detailKey) return;
  const subject = (key) => key.split("\n", 3).join("\n");
  const isSame = subject(seen.detailKey) === subject(detailKey);
  seen.detailKey = detailKey;
  if (!route.open) {
    seen.detail = null;
    aside.hidden = true;
    aside.replaceChildren();
    goBack();
    return;
  }
  if (aside.hidden)
    seen.back = document.activeElement?.closest("#main a")?.getAttribute("href") ?? null;
  aside.hidden = false;
  if (!isSame) {
    aside.replaceChildren(h("div.sheet", h("p.loading", "Loading…")));
    aside.scrollTop = 0;
  }
  const root = aside.firstElementChild;
  const draw = DETAILS.get(route.open.kind) ?? noDetail;
  seen.detail = draw(root, route.open.name);
  await loaded(seen.detail, root);
  if (seen.detailKey === detailKey && !isSame)
    ($("detail-title") ?? aside).focus({ preventScroll: true });
}

/** Closing a detail leads back to where it was opened. */
function goBack() {
  const item =
    seen.back &&
    [...document.querySelectorAll("#main a")].find((a) => a.getAttribute("href") === seen.back);
  (item ?? $("main")).focus({ preventScroll: true });
  seen.back = null;
}

function noDetail(root, of) {
  const refresh = async () =>
    swap(
      root,
      detailHead("", null, of, ""),
      p("The page knows nothing of this kind. Close it, and choose another."),
    );
  return { refresh };
}

/* ---- Live ----------------------------------------------------------------------------------- */

const pace = { timer: 0, busy: false, wanted: false, event: null };
let stream = null;

/** Load again what is shown; never twice at once. */
async function again(isChange = false) {
  if (pace.busy) {
    pace.wanted = true;
    return;
  }
  pace.busy = true;
  calm.changing = isChange === true;
  const began = performance.now();
  await Promise.all([
    loaded(seen.view, seen.root),
    seen.detail ? loaded(seen.detail, $("detail").firstElementChild ?? $("detail")) : null,
  ]);
  calm.changing = false;
  const took = performance.now() - began;
  setTimeout(
    () => {
      pace.busy = false;
      if (pace.wanted) {
        pace.wanted = false;
        again(true);
      }
    },
    Math.max(250, 2 * took),
  );
}

/** What was heard before counts, not what was read last: other parts were read earlier. */
function hear({ event, isFound, lost, error }) {
  if (lost) return lose();
  const wasLost = !$("lost").hidden;
  find();
  if (error) pace.event = null;
  if (error || (isFound && wasLost)) return again();
  const since = pace.event;
  if (event === undefined || event === since) return false;
  pace.event = event;
  clearTimeout(pace.timer);
  pace.timer = setTimeout(() => {
    if (since !== null) tellNews(since);
    again(true);
  }, 120);
  return true;
}

/** Say at the bottom, and to a screen reader, what changed last. */
async function tellNews(since) {
  if (!source.views.includes("history")) return;
  try {
    const page = await source.get("history", {
      project: route.project,
      since: String(since),
      limit: 20,
    });
    const last = page.events.at(-1);
    if (!last) return;
    const more = page.events.length - 1 + (page.more ?? 0);
    swap(
      $("news"),
      who(last.actor),
      ": ",
      last.kind === "memory" ? "block" : last.kind,
      " ",
      subjectLink(last.kind, last.name, last.run) ?? "",
      " ",
      h("span.said", { dir: "auto" }, last.summary || last.operation),
      more > 0 ? ` and ${plural(more, "more change")}` : "",
    );
  } catch (problem) {
    heard(problem);
  }
}

/* ---- Keys ----------------------------------------------------------------------------------- */

const KEYS = [
  ["1 … 7", "the views, as listed"],
  ["/", "search"],
  ["j k", "next and previous in a list (also ↓ ↑)"],
  ["h l", "column to the left and right on the board (also ← →)"],
  ["Enter", "open"],
  ["Esc", "close, then leave the search field"],
  ["t", "light, dark, or as the system has it"],
  ["?", "these keys"],
];

function showKeys() {
  const dialog = $("dialog");
  const back = document.activeElement;
  dialog.replaceChildren(
    h(
      "form",
      { method: "dialog" },
      h("h2", { id: "dialog-title" }, "Keys"),
      h(
        "dl.keys",
        KEYS.map(([key, does]) => [
          h(
            "dt",
            key.split(" ").map((one) => (one === "…" ? " … " : h("kbd", one))),
          ),
          h("dd", does),
        ]),
      ),
      h("div.buttons", h("button.main", "Close")),
    ),
  );
  dialog.addEventListener("close", () => back?.focus(), { once: true });
  dialog.showModal();
}

const itemsIn = (box) =>
  [...box.querySelectorAll("[data-item]")].filter((item) => item.checkVisibility?.() ?? true);

function focusOn(item) {
  const target = item.matches("a, [tabindex]") ? item : (item.querySelector("a") ?? item);
  target.focus();
  item.scrollIntoView({ block: "nearest" });
}

function step(by) {
  const at = document.activeElement?.closest("[data-item]");
  const box =
    at?.closest(".column") ??
    at?.closest("#detail") ??
    (document.body.dataset.view === "board" ? document.querySelector(".column") : $("main"));
  const items = itemsIn(box ?? $("main"));
  const next = items[at ? items.indexOf(at) + by : by > 0 ? 0 : items.length - 1];
  if (next) focusOn(next);
}

function aside(by) {
  const columns = [...document.querySelectorAll(".column")].filter(
    (column) => itemsIn(column).length,
  );
  const at = document.activeElement?.closest(".column");
  const next = columns[at ? columns.indexOf(at) + by : 0];
  if (!next) return;
  const top = document.activeElement?.closest("[data-item]")?.getBoundingClientRect().top ?? 0;
  const edge = next.querySelector(".scroller").getBoundingClientRect().top;
  focusOn(
    itemsIn(next).find((item) => item.getBoundingClientRect().top >= Math.max(edge, top) - 8) ??
      itemsIn(next).at(-1),
  );
}

function pressed(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  const typing = event.target.closest?.("input, select, textarea");
  if ($("dialog").open) return;
  if (event.key === "Escape") {
    if (typing) typing.blur();
    else if (route.open) go(closing());
    else return;
    event.preventDefault();
    return;
  }
  if (typing) return;
  const does = {
    "/": () => $("query").focus(),
    "?": showKeys,
    t: turnTheme,
    j: () => step(1),
    k: () => step(-1),
    ArrowDown: () => step(1),
    ArrowUp: () => step(-1),
    h: () => aside(-1),
    l: () => aside(1),
    ArrowLeft: () => aside(-1),
    ArrowRight: () => aside(1),
  }[event.key];
  const isInList = Boolean(document.activeElement?.closest("[data-item]"));
  const isBoard = document.body.dataset.view === "board";
  if (event.key.startsWith("Arrow") && !isInList) return;
  if (["h", "l", "ArrowLeft", "ArrowRight"].includes(event.key) && !isBoard) return;
  const view = shown().filter((one) => !one.isUnlisted)[Number(event.key) - 1];
  if (view && /^[1-9]$/.test(event.key)) go(to(view.id));
  else if (does) does();
  else return;
  event.preventDefault();
}

/* ---- Light and dark --------------------------------------------------------------------------- */

const THEMES = ["", "light", "dark"];

function remembered() {
  try {
    return localStorage.getItem("theme") ?? "";
  } catch {
    return "";
  }
}

function wear(theme) {
  if (theme) document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
  $("theme").title = `Light or dark: ${theme || "as the system has it"} (t)`;
}

function turnTheme() {
  const theme =
    THEMES[(THEMES.indexOf(document.documentElement.dataset.theme ?? "") + 1) % THEMES.length];
  wear(theme);
  try {
    localStorage.setItem("theme", theme);
  } catch {
    /* a frame without storage: it holds until the page is closed */
  }
}

/* ---- Begin ---------------------------------------------------------------------------------- */

wear(remembered() || (document.documentElement.dataset.theme ?? ""));
$("theme").addEventListener("click", turnTheme);
$("help").addEventListener("click", showKeys);
$("skip").addEventListener("click", (event) => {
  event.preventDefault();
  $("main").focus();
});
$("brand").setAttribute("href", `#${shown()[0].id}`);
$("search").hidden = !source.views.includes("search");
$("picker").hidden = !source.views.includes("projects");
$("search").addEventListener("submit", (event) => {
  event.preventDefault();
  if ($("query").value.trim()) go(to("search", { query: $("query").value.trim() }));
});
$("project").addEventListener("change", (event) => {
  go(to(route.view, { project: event.target.value }));
});
document.addEventListener("keydown", pressed);
addEventListener("hashchange", () => {
  $("dialog").close(); // what it asks is about what was shown
  arrive();
});
phone.addEventListener("change", () => {
  seen.viewKey = "";
  arrive();
});
setInterval(tick, 20_000);
if (source.isLive) setInterval(() => document.hidden || again(true), 60_000);
tellLink();
readRoute();
drawNav();
if (source.views.includes("projects")) await drawProjects().catch(heard);
arrive();
stream = source.live(hear);
