"""Operations that a CPU does faster by other means than torch's usual ones, for eager training in float32.

Each is here because it gains several per cent of a whole step (docs/log.md), and stands beside the usual way, which is
taken everywhere else.
"""
