"""Who may ask the page's server: this machine, with the key, from no other page."""

from __future__ import annotations

import secrets
from collections.abc import AsyncGenerator
from urllib.parse import quote, urlsplit

import pytest
from browsing import Browser, browsing
from starlette.responses import PlainTextResponse
from starlette.types import Message, Receive, Scope, Send

from mcp_state.settings import Settings
from mcp_state.web.guard import Guard

CLOSED = {
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'",
    "cross-origin-embedder-policy": "require-corp",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
COPY = "Copy the whole address that `mcp-state web` printed, and open it on the same machine.\n"
NO_KEY = "There is nothing at this address: its key is another one, or an earlier one. " + COPY
ELSEWHERE = "This request comes from another page. " + COPY


@pytest.fixture
async def page(settings: Settings) -> AsyncGenerator[Browser]:
    async with browsing(settings) as browser:
        yield browser


async def test_the_page_is_three_files_and_nothing_of_it_comes_from_elsewhere(
    page: Browser,
) -> None:
    for name, kind in {
        "": "text/html; charset=utf-8",
        "board.js": "text/javascript; charset=utf-8",
        "board.css": "text/css; charset=utf-8",
    }.items():
        reply = await page.get(name)
        assert (reply.status, reply.headers["content-type"]) == (200, kind)
        assert reply.headers.items() >= CLOSED.items()
        assert int(reply.headers["content-length"]) == len(reply.body) > 0
        assert "set-cookie" not in reply.headers and "server" not in reply.headers


async def test_without_the_whole_key_there_is_nothing(page: Browser) -> None:
    key = page.path.strip("/")
    wrong = ["", key[:-1], key + "A", key.swapcase(), secrets.token_urlsafe(32), quote("ü"), "%00"]
    for first in wrong:
        for rest in ("", "/", "/api/threads", "/board.js", "/api/do/lock"):
            reply = await page.ask("GET", f"/{first}{rest}")
            assert (reply.status, reply.text) == (403, NO_KEY)
            assert reply.headers.items() >= CLOSED.items()
            assert key not in str(reply)


async def test_the_key_is_compared_in_constant_time(
    page: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[bytes, bytes]] = []
    compare = secrets.compare_digest

    def spy(first: bytes, second: bytes) -> bool:
        compared.append((first, second))
        return compare(first, second)

    monkeypatch.setattr(secrets, "compare_digest", spy)

    assert (await page.ask("GET", "/guess/")).status == 403
    assert (await page.get()).status == 200

    key, ticket = page.path.strip("/").encode(), urlsplit(page.once).path.strip("/").encode()
    assert compared == [(b"guess", ticket), (b"guess", key), (key, ticket), (key, key)]


async def test_each_start_has_a_key_of_its_own_of_32_random_bytes(settings: Settings) -> None:
    keys: set[str] = set()
    for _ in range(2):
        async with browsing(settings) as page:
            keys |= {page.path.strip("/"), urlsplit(page.once).path.strip("/")}
    assert len(keys) == 4
    assert {len(key) for key in keys} == {43}


async def test_the_address_that_opens_the_browser_leads_to_the_page_once(page: Browser) -> None:
    once = urlsplit(page.once).path
    assert (await page.ask("HEAD", once)).status == 403  # whoever only looks does not use it up

    first, second = await page.ask("GET", once), await page.ask("GET", once)

    assert (first.status, first.headers["location"], first.body) == (303, page.path, b"")
    assert first.headers.items() >= CLOSED.items()
    assert (second.status, second.text) == (403, NO_KEY)


async def test_an_address_without_its_last_slash_leads_to_the_page(page: Browser) -> None:
    reply = await page.ask("GET", page.path.rstrip("/"))

    assert (reply.status, reply.headers["location"]) == (303, page.path)


async def test_only_the_names_of_this_machine_are_answered(page: Browser) -> None:
    port = page.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        assert (await page.ask("GET", page.path, host=host)).status == 200
    for host in (
        "evil.example",
        f"evil.example:{port}",
        "127.0.0.1",
        "localhost",
        f"127.0.0.1:{port + 1}",
        f"127.0.0.1:{port}.evil.example",
        f"evil.example#127.0.0.1:{port}",
        f"127.0.0.1:{port}@evil.example",
        f"[::1]:{port}",
        f"0.0.0.0:{port}",
    ):
        reply = await page.ask("GET", page.path, host=host)
        names = f"127.0.0.1:{port} and localhost:{port}"
        assert (reply.status, reply.text) == (403, f"This page answers only to {names}. {COPY}")
        assert reply.headers.items() >= CLOSED.items()


async def test_at_port_80_a_browser_names_no_port() -> None:
    async def here(scope: Scope, receive: Receive, send: Send) -> None:
        await PlainTextResponse("here")(scope, receive, send)

    async def status(port: int, **headers: str) -> int:
        told: list[Message] = []

        async def send(message: Message) -> None:
            told.append(message)

        async def receive() -> Message:
            return {"type": "http.disconnect"}

        named = [(name.encode(), value.encode()) for name, value in headers.items()]
        scope = {"type": "http", "method": "POST", "raw_path": b"/key/", "headers": named}
        await Guard(here, "key", "once", port)(scope, receive, send)
        return told[0]["status"]

    for name in ("127.0.0.1", "localhost"):
        assert await status(80, host=name, origin=f"http://{name}") == 200
        assert await status(80, host=f"{name}:80", origin=f"http://{name}:80") == 200
        assert await status(8080, host=name, origin=f"http://{name}") == 403
    assert await status(80, host="evil.example", origin="http://evil.example") == 403


async def test_a_request_without_a_host_or_with_two_is_refused(page: Browser) -> None:
    own = f"Host: 127.0.0.1:{page.port}\r\n"
    target = f"{page.path}api/threads"
    for request in (
        f"GET {target} HTTP/1.0\r\n\r\n",
        f"GET {target} HTTP/1.1\r\nConnection: close\r\n\r\n",
        f"GET {target} HTTP/1.1\r\nConnection: close\r\n{own}Host: evil.example\r\n\r\n",
        f"GET http://evil.example{target} HTTP/1.1\r\nConnection: close\r\n{own}\r\n",
    ):
        reply = await page.send(request.encode())
        assert reply.status in (400, 403)
        assert b"threads" not in reply.body


async def test_no_other_page_may_read(page: Browser) -> None:
    for origin in ("https://evil.example", "null", f"http://127.0.0.1:{page.port + 1}", ""):
        reply = await page.get("api/threads", origin=origin)
        assert (reply.status, reply.text) == (403, ELSEWHERE)
    for site in ("cross-site", "same-site", "what"):
        reply = await page.get("api/threads", sec_fetch_site=site)
        assert (reply.status, reply.text) == (403, ELSEWHERE)
        reply = await page.get("board.js", sec_fetch_site=site, sec_fetch_mode="no-cors")
        assert reply.status == 403
        framed = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "iframe"}
        assert (await page.get("", sec_fetch_site=site, **framed)).status == 403
    for site in ("same-origin", "none"):
        assert (await page.get("api/threads", sec_fetch_site=site)).status == 200
    assert (await page.get("api/threads", origin=page.origin)).status == 200


async def test_a_link_to_the_page_may_be_followed_from_anywhere(page: Browser) -> None:
    opened = {"sec_fetch_mode": "navigate", "sec_fetch_dest": "document"}

    assert (await page.get("", sec_fetch_site="cross-site", **opened)).status == 200
    posted = await page.post("api/do/unlock", b'{"key":"x"}', sec_fetch_site="cross-site", **opened)
    assert (posted.status, posted.text) == (403, ELSEWHERE)


async def test_no_other_page_may_do_anything(page: Browser) -> None:
    body = b'{"key": "plan", "reason": "x"}'
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": f"https://127.0.0.1:{page.port}"},
        {"origin": f"http://localhost:{page.port}"},  # the name by which it was not asked
        {"origin": f"{page.origin}, {page.origin}"},
        {"sec_fetch_site": "same-site"},
        {"sec_fetch_site": "cross-site"},
    ):
        reply = await page.post("api/do/lock", body, **headers)
        assert (reply.status, reply.text) == (403, ELSEWHERE)
    bare = await page.ask("POST", f"{page.path}api/do/lock", body, content_type="application/json")
    assert (bare.status, bare.text) == (403, ELSEWHERE)
    forwarded = await page.post("api/do/lock", body, origin="http://evil", x_forwarded_host="evil")
    assert forwarded.status == 403


async def test_no_way_through_the_path_leads_elsewhere(page: Browser) -> None:
    for rest in (
        "../board.js",
        "%2e%2e/board.js",
        "..%2f..%2fetc/passwd",
        "board.js/",
        "board.js%00",
        "/board.js",
        "//board.js",
        "./board.js",
        "page/board.js",
        "board%2ejs",
        "BOARD.JS",
        "board.html",
        "\\board.js",
        "api",
        "api/",
        "api/threads/",
        "api//threads",
        "api/%74hreads",
        "api/do",
        "api/do/threads",
        "api/check_project",
        "api/__class__",
        "favicon.ico",
    ):
        reply = await page.get(rest)
        assert (reply.status, reply.text) == (404, f"There is nothing at this address. {COPY}")
        assert reply.headers.items() >= CLOSED.items()
    for target in (f"/{page.path}", f"//{page.path}", f"/x/..{page.path}", f"/.{page.path}", "*"):
        assert (await page.ask("GET", target)).status == 403


async def test_every_other_method_does_nothing(page: Browser) -> None:
    for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"):
        for rest, allowed in {
            "": "GET, HEAD",
            "api/threads": "GET, HEAD",
            "api/do/lock": "POST",
        }.items():
            reply = await page.ask(method, page.path + rest)
            assert reply.status == 405
            assert set(reply.headers["allow"].split(", ")) == set(allowed.split(", "))
            told = f"Only {reply.headers['allow']} does something here. {COPY}"
            assert reply.text == told
            assert not [name for name in reply.headers if name.startswith("access-control")]
    assert (await page.get("api/do/lock")).status == 405
    assert (await page.post("api/threads", b"{}")).status == 405
    assert (await page.post("api/live", b"{}")).status == 405


async def test_head_answers_what_get_would_without_the_body(page: Browser) -> None:
    for rest in ("", "board.js", "api/threads", "api/thread?name=none"):
        asked, given = await page.ask("HEAD", page.path + rest), await page.get(rest)
        asked_headers, given_headers = dict(asked.headers), dict(given.headers)
        if rest == "api/threads":  # it tells the time
            assert asked_headers.pop("content-length") and given_headers.pop("content-length")
        assert (asked.status, asked_headers, asked.body) == (given.status, given_headers, b"")
    live = await page.ask("HEAD", f"{page.path}api/live")
    assert (live.status, live.body) == (200, b"")
    assert live.headers["content-type"] == "text/event-stream; charset=utf-8"


async def test_a_body_is_one_json_object_of_a_bounded_size(page: Browser) -> None:
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", "", "x"):
        reply = await page.post("api/do/lock", b'{"key":"plan","reason":"x"}', content_type=kind)
        assert reply.status == 400
        assert reply.json["error"]["next_step"] == "Send application/json."
    for body in (b"", b"{", b"[]", b'"key"', b"null", b"\xff", b"[" * 60_000, b"9" * 60_000):
        reply = await page.post("api/do/lock", body)
        assert (reply.status, reply.json["error"]["code"]) == (400, "bad_argument")
        assert reply.json["error"]["next_step"] == "Send one JSON object."
    large = await page.post("api/do/lock", b'{"key":"' + b"x" * 1_100_000 + b'"}')
    assert (large.status, large.json["error"]["code"]) == (413, "over_limit")
    chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
    head = (
        f"POST {page.path}api/do/lock HTTP/1.1\r\nHost: 127.0.0.1:{page.port}\r\n"
        f"Origin: {page.origin}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    chunked = await page.send(head.encode() + chunk * 20 + b"0\r\n\r\n")
    assert (chunked.status, chunked.json["error"]["code"]) == (413, "over_limit")
