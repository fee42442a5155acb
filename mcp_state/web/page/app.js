/* The source of the page when it is an MCP App: the chat's host, spoken to by postMessage (MCP
 * Apps, revision 2026-01-26). What it shows first came with the answer of a tool, in `_meta`; for
 * more it calls tools that only read, as the model does.
 */
globalThis.boardSource = (() => {
  const ANSWERS = "mcp-state/answers";
  const TOOLS = {
    threads: ({ status, due, cursor }) => ["thread_list", { status, due: due ? true : "", cursor }],
    thread: ({ name }) => ["thread_get", { thread: name }],
  };
  const PATIENCE = 1500; // ms for the host to tell the answer that the app was opened for
  const HEIGHT = 620;

  const refusal = (code, fact, next) => Object.assign(new Error(fact), { code, next });

  /* ---- JSON-RPC with the host ---- */

  const pending = new Map();
  let last = 0;
  const send = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const request = (method, params) =>
    new Promise((resolve, reject) => {
      last += 1;
      pending.set(last, { resolve, reject });
      send({ id: last, method, params });
    });

  function settle({ id, result, error }) {
    const asked = pending.get(id);
    pending.delete(id);
    if (error) asked?.reject(refusal("host", error.message || "The host refused.", "Ask in the chat."));
    else asked?.resolve(result ?? {});
  }

  const told = {
    "ui/notifications/tool-result": (result) => take(result),
    "ui/notifications/tool-cancelled": () => begin(),
    "ui/notifications/host-context-changed": (context) => wear(context),
  };

  addEventListener("message", ({ source, data }) => {
    if (source !== parent || data?.jsonrpc !== "2.0") return;
    if (data.method === undefined) settle(data);
    else if (data.id === undefined) told[data.method]?.(data.params ?? {});
    else if (["ping", "ui/resource-teardown"].includes(data.method)) send({ id: data.id, result: {} });
    else send({ id: data.id, error: { code: -32601, message: `no method ${data.method}` } });
  });

  /* ---- Answers: each that came with a tool's is shown once, then asked for anew ---- */

  const answers = new Map();
  const key = (view, { status, due, cursor, name }) =>
    JSON.stringify([view, status || "", Boolean(due), cursor || "", name || ""]);
  let begin = null;
  const begun = new Promise((resolve) => {
    begin = () => resolve();
  });
  let hears = null; // while nothing is shown, there is nothing to be brought up to date
  let host = {}; // what it can do
  let project = ""; // that the tool was asked for, if it was

  function take({ _meta }) {
    const given = _meta?.[ANSWERS] ?? [];
    if (given.length) {
      const { scope } = given[0].answer;
      project = scope.how === "argument" ? scope.project : "";
      answers.clear();
      for (const { view, params, answer } of given) answers.set(key(view, params), answer);
      if (hears && !hears({ event: scope.event }) && host.serverTools) answers.clear();
    }
    begin();
  }

  async function get(view, params = {}) {
    await begun;
    const asked = key(view, params);
    const known = answers.get(asked);
    if (known && !host.serverTools) return known;
    if (answers.delete(asked)) return known;
    if (!host.serverTools) {
      const fact = "this chat shows no more than what a tool has answered";
      throw refusal("no_tools", fact, "Ask for it in the chat.");
    }
    const [tool, named] = TOOLS[view](params);
    const chosen = Object.entries({ ...named, project }).filter(([, value]) => value);
    const result = await request("tools/call", { name: tool, arguments: Object.fromEntries(chosen) });
    const found = result._meta?.[ANSWERS]?.find((one) => key(one.view, one.params) === asked);
    if (found) return found.answer;
    const text = (result.content ?? []).map((block) => block.text ?? "").join("\n");
    const [, code, fact] = /^error: (\w+): (.*)/.exec(text) ?? []; // as the server words it
    if (code) throw refusal(code, fact, "");
    throw refusal("no_answer", "The host left out what this page shows.", "Ask in the chat.");
  }

  /* ---- The frame that the host gives ---- */

  function wear({ theme, containerDimensions }) {
    if (theme) document.documentElement.dataset.theme = theme;
    if (!containerDimensions || containerDimensions.height) return;
    const height = Math.min(HEIGHT, containerDimensions.maxHeight ?? HEIGHT);
    send({ method: "ui/notifications/size-changed", params: { width: innerWidth, height } });
  }

  // A document without an address of its own must not follow links: fragments are set, and what
  // leads elsewhere is the host's to open.
  addEventListener(
    "click",
    (event) => {
      const address = event.target.closest?.("a[href]")?.getAttribute("href");
      if (!address) return;
      event.preventDefault();
      if (address.startsWith("#")) location.hash = address;
      else request("ui/open-link", { url: address }).catch(() => {});
    },
    true,
  );

  request("ui/initialize", {
    protocolVersion: "2026-01-26",
    appInfo: { name: "mcp-state", version: "1" },
    appCapabilities: { availableDisplayModes: ["inline", "fullscreen"] },
  })
    .catch(() => ({}))
    .then(({ hostCapabilities, hostContext }) => {
      host = hostCapabilities ?? {};
      send({ method: "ui/notifications/initialized", params: {} });
      wear({ containerDimensions: {}, ...hostContext });
      setTimeout(begin, PATIENCE);
    });

  return {
    isLive: false,
    views: ["threads", "thread"],
    get,
    live(listener) {
      begun.then(() => {
        hears = listener;
      });
    },
  };
})();
