#!/usr/bin/env python3
"""The backend of fake_backend.py, whose rule holds only for the names that contain a text; all others are ready at once.

    choosy_backend.py TEXT SOCKET [options of fake_backend.py]
"""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "client" / "tests"))
import fake_backend  # noqa: E402


class Choosy(fake_backend.Fake):
    def __init__(self, text, args):
        super().__init__(args)
        self.text = text.encode()
        self.matches = False

    def note(self, *words):
        self.matches = any(self.text in str(word).encode() for word in words)
        super().note(*words)

    def answer(self, client, number):
        rule, delay_ms = self.args.answer, self.args.delay_ms
        if not self.matches:
            self.args.answer, self.args.delay_ms = "ready", 0
        super().answer(client, number)
        self.args.answer, self.args.delay_ms = rule, delay_ms


if __name__ == "__main__":
    text = sys.argv.pop(1)
    Choosy(text, fake_backend.arguments()).run()
