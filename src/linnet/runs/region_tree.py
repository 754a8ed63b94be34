"""`RegionNode`: the regions of a step as a tree, with the time that each took."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

_DEEPEST = 100  # regions within each other


@dataclass
class RegionNode:
    """A stretch of work: its name, when it began and how long it took, in microseconds, and what it consists of.

    `path` is its whole name, where that says more than the name: `forward/blocks.3/attention`.
    """

    path: str
    begin_us: float
    us: float = 0.0
    children: list[RegionNode] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.rpartition("/")[2]

    @property
    def own_us(self) -> float:
        """What is left when its children's time is taken away."""
        return max(0.0, self.us - sum(child.us for child in self.children))

    def walk(self, depth: int = 0) -> Iterator[tuple[int, RegionNode]]:
        """Itself and all below it, in the order in which they began, each with its depth."""
        yield depth, self
        for child in self.children:
            yield from child.walk(depth + 1)


def region_tree(marks: Iterable[tuple[bool, str, float]]) -> RegionNode:
    """The tree of what was entered and left, in that order; several regions side by side get a root of no name.

    A region that was never left ends with what is round it, or with the last mark. What lies deeper than anything
    nests is left out.
    """
    root, last = RegionNode("", 0.0), 0.0
    stack = [root]
    for entered, path, moment in marks:
        last = moment
        if entered:
            node = RegionNode(path, moment)
            if len(stack) <= _DEEPEST:
                stack[-1].children.append(node)
                stack.append(node)
        elif any(node.path == path for node in stack[1:]):
            while stack[-1].path != path:
                _end(stack.pop(), moment)
            _end(stack.pop(), moment)
    while len(stack) > 1:
        _end(stack.pop(), last)
    if len(root.children) == 1:
        return root.children[0]
    if root.children:
        root.begin_us = root.children[0].begin_us
        _end(root, last)
    return root


def _end(node: RegionNode, moment: float) -> None:
    node.us = moment - node.begin_us
