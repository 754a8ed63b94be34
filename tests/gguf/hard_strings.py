"""Texts on which tokenizers disagree: scripts, digits, whitespace, contractions, marks, controls, emoji."""

# ruff: noqa: RUF001
from __future__ import annotations

_SCRIPTS = [
    "The quick brown fox jumps over the lazy dog.", "Größe, Übermut, Fußgängerübergänge",
    "naïve café déjà vu", "Zażółć gęślą jaźń", "Příliš žluťoučký kůň", "İstanbul'da ığdır",
    "Ελληνικά και ΑΘΗΝΑ", "Съешь ещё этих булок", "שלום עולם", "مرحبا بالعالم", "هذا ١٢٣ نص",
    "नमस्ते दुनिया", "বাংলা ভাষা", "தமிழ் மொழி", "ไทยไม่มีวรรค", "ລາວ", "ភាសាខ្មែរ", "မြန်မာ",
    "ქართული ენა", "Հայերեն", "አማርኛ", "你好，世界", "日本語とカタカナとひらがな", "한국어 띄어쓰기",
    "ﾊﾝｶｸ ｶﾅ", "ＦＵＬＬ ｗｉｄｔｈ１２３", "Tiếng Việt có dấu", "ꙮ ꬰ ⴰⵣⵓⵍ", "𐐷𐑏 𝕳𝖊𝖑𝖑𝖔 𝟘𝟙𝟚",
    "ⅫⅣ ½ ¾ ² ³ ①②③ ㊿", "中文English混排mixed",
]  # fmt: skip
_DIGITS = [
    "1", "12", "123", "1234", "1234567890", " 7", "  42", "3.14159", "1,000,000", "1e-10", "0x1F2",
    "a1b2c3", "12a34", "2024-05-31T12:00:00Z", "٠١٢٣٤٥٦٧٨٩", "१२३४", "1²3", "½1", "𝟘𝟙", "v1.2.3-rc4",
    "$1234.56", "100%", "#42", "1st 2nd 3rd",
]  # fmt: skip
_WHITESPACE = [
    "", " ", "  ", "   ", "    ", " a", "  a", "   a", "a ", "a  ", "a   ", "a b", "a  b", "a   b", "\n",
    "\n\n", "\n\n\n", "a\n", "a\n\n", "\na", "\n\na", " \n", "\n ", " \n ", "a \n b", "a\n\n  b",
    "  \n\n  x", "\t", "\t\t", "\ta", "a\tb", " \t \t", "\r", "\r\n", "a\r\nb", "a\r\n\r\nb", "\r\n  x",
    "x  \r\n", "\x0b\x0c", "a\u00a0b", "\u00a0", "\u2003\u2003x", "a\u3000b", "\u3000\u3000", "\u200bz",
    "a\u2028b\u2029c", "\u0085x", "!\n", "!\n\n", "! \n", "...\n\n\nx", "{\n    }\n",
    "def f(x):\n    return x\n\n\n", "if x:\n\t\tpass", "x = [\n  1,\n  2\n]", " " * 17, "\n" * 9,
    "\t" * 5, " \n" * 4,
]  # fmt: skip
_CONTRACTIONS = [
    "it's", "IT'S", "I'll", "I'LL", "we've", "WE'VE", "they're", "I'm", "he'd", "don't", "DON'T", "'s",
    "' s", "''s", "'S", "'sx", "'tis", "rock'n'roll", "it’s", "l'été", "'ſ", "x'ſt", "'RE've'Ll", "a'b'c",
    "'1", " 's", "  're", "o'clock", "can't've", "'", "''", "'''", "'\n", "'s\n't",
]  # fmt: skip
_MARKS = [
    "e\u0301", "e\u0301a", "a\u0308\u0304", "\u0301", " \u0301", "x\u0301\u0302\u0303\u0304y", "क्ष्म",
    "ก็", "Z͑͗a̴l̸g̷o̶", "\ufeffx", "a\u200db", "a\u00adb", "שָׁלוֹם", "n\u0303o", "\u0e33", "ﬁ ﬂ", "Å Å",
]  # fmt: skip
_CONTROLS = [
    "\x00", "a\x00b", "\x01\x02", "\x07\x08", "\x1b[31mred\x1b[0m", "\x7f", "\x80\x9f", "\ufffd",
    "\ufffe", "\uffff", "\ue000", "\U000e0001", "\U0010ffff", "a\x1fb",
]  # fmt: skip
_EMOJI = [
    "🙂", "🙂🙂", "a🙂b", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇫🇷", "👍🏽", "1️⃣", "☃️", "❤", "🫠", "🦜🔗", " 🙂",
    "  🙂 ", "🙂1", "🙂's",
]  # fmt: skip
_SIGNS = [
    "!?", "...", "…", "--", "—", "a-b", "a_b", "a__b__c", "(a)", "[b]", "{c}", "<d>", "a=b", "a==b",
    "a!=b", "x->y", "http://example.com/a?b=c&d=e#f", "me@example.com", "C:\\dir\\file.txt", "/usr/lib",
    "`code`", "~~x~~", "**b**", "# Title", "α≤β≠γ", "∑∏∫√∞", "→←↑↓", "€100 £5 ¥7", "©®™", "«quoted»",
    "„quoted“", "¿qué?", "▁under▁", "a▁b", "Ġbyte", "<0x0A>", "<unk>",
]  # fmt: skip
_SPECIAL = [
    "<|endoftext|>", "a<|endoftext|>b", "a <|endoftext|> b", "<|endoftext|><|endoftext|>", "<|endoftext|",
    "<|im_start|>", "<|im_start|>user\nhi<|im_end|>\n", "<s>", "</s>", "<s>a</s>", "x</s> y", " <s> ",
    "[INST] hi [/INST]", "<tool>", "a<tool>b", "<tool> 1", "[PAD3]", "\n<|endoftext|>\n",
    "<<|endoftext|>>",
]  # fmt: skip
_CODE = [
    "for (int i = 0; i < n; ++i) { sum += a[i]; }", "SELECT * FROM t WHERE x='y';",
    '{"k": [1, 2.5, null, true]}', "λx.x", "print(f\"{x!r:>{w}}\")", "CamelCaseAndSNAKE_CASEMixed",
    "aaaaaaaaaaaaaaaaaaaa", "abababababab", "aAaAaA", "supercalifragilisticexpialidocious", "x" * 300,
    "ha" * 60, "é" * 40, "the the the  the",
]  # fmt: skip

HARD_STRINGS = [
    *_SCRIPTS, *_DIGITS, *_WHITESPACE, *_CONTRACTIONS, *_MARKS, *_CONTROLS,
    *_EMOJI, *_SIGNS, *_SPECIAL, *_CODE,
]  # fmt: skip
