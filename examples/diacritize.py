"""Add vowel marks to Arabic text with the model of piper-tts: nine GRU layers with lengths, nine TopK.

pip install 'cudml[onnx]' piper-tts     # in a checkout: pip install '.[onnx]' piper-tts
python examples/diacritize.py [TEXT]
"""

import sys

from piper.tashkeel import TASHKEEL_DIR, TashkeelDiacritizer

import cudml.onnx


def main() -> None:
    text = sys.argv[1] if len(sys.argv) > 1 else "السلام عليكم ورحمة الله"
    diacritizer = TashkeelDiacritizer()
    by_onnxruntime = diacritizer(text)
    diacritizer.session = cudml.onnx.Session(TASHKEEL_DIR / "model.onnx")
    print(diacritizer(text))
    placed = diacritizer.session.placed
    print(sum(row.runs_on == "cudml" for row in placed), "nodes by cudml,", end=" ")
    print("the same text as by ONNX Runtime" if diacritizer(text) == by_onnxruntime else "another text")


if __name__ == "__main__":
    main()
