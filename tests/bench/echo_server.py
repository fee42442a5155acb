"""The least that a server can do: answer each line with the same few bytes, without reading it."""

import os
import re

_ID = re.compile(rb'"id": ?(\d+)')


def main() -> None:
    rest = b""
    while data := os.read(0, 1 << 20):
        *lines, rest = (rest + data).split(b"\n")
        answers = [
            b'{"jsonrpc":"2.0","id":%s,"result":{"tools":[],"content":[{"type":"text","text":"ok"}]}}'
            % found[1]
            for line in lines
            if (found := _ID.search(line))
        ]
        os.write(1, b"".join(answer + b"\n" for answer in answers))


if __name__ == "__main__":
    main()
