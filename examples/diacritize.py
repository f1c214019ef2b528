"""Add vowel marks to Arabic text with the model of piper-tts: nine GRU layers with lengths, nine TopK.

pip install 'cudml[onnx]' piper-tts
python examples/diacritize.py [TEXT]
"""

import sys
from typing import Any

from piper.tashkeel import TASHKEEL_DIR, TashkeelDiacritizer

import cudml.onnx


class Adapter:
    """What piper calls, by cudml."""

    def __init__(self) -> None:
        self.session = cudml.onnx.Session(TASHKEEL_DIR / "model.onnx")

    def run(self, names: Any, feeds: dict[str, Any]) -> list[Any]:
        return list(self.session.run(feeds, names).values())


def main() -> None:
    text = sys.argv[1] if len(sys.argv) > 1 else "السلام عليكم ورحمة الله"
    diacritizer = TashkeelDiacritizer()
    by_onnxruntime = diacritizer(text)
    diacritizer.session = Adapter()
    print(diacritizer(text))
    placed = diacritizer.session.session.placed
    print(sum(row.runs_on == "cudml" for row in placed), "nodes by cudml,", end=" ")
    print("the same text as by ONNX Runtime" if diacritizer(text) == by_onnxruntime else "another text")


if __name__ == "__main__":
    main()
