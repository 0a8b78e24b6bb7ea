"""Build the meter into a parsed template, before it is compiled."""

from __future__ import annotations

from typing import Any

from jinja2 import nodes
from jinja2.visitor import NodeTransformer


def rewrite(tree: nodes.Template) -> nodes.Template:
    """Change the tree in place: the clock before statements, the sandbox between operations."""
    _Rewriter().visit(tree)
    for loop in tree.find_all(nodes.For):
        loop.body.insert(0, _look_at_clock(loop.lineno))
    for macro in tree.find_all(nodes.Macro):
        macro.body.insert(0, _look_at_clock(macro.lineno))
    return tree


class _Rewriter(NodeTransformer):
    """Visits every node; a statement in a list of statements becomes two."""

    def generic_visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        elifs = list(node.elif_) if isinstance(node, nodes.If) else []
        super().generic_visit(node, *args, **kwargs)
        if isinstance(node, nodes.If):
            node.elif_ = elifs  # their places admit no other statements
            for branch in elifs:
                branch.test = nodes.And(_clock(), branch.test).set_lineno(branch.lineno)
        if isinstance(node, nodes.Stmt) and not isinstance(node, nodes.ExprStmt):
            return [_look_at_clock(node.lineno), node]
        return node

    def visit_Output(self, node: nodes.Output) -> list[nodes.Node]:
        """Count the template's own text; values are counted by finalize."""
        self.generic_visit(node)
        num_chars = sum(
            len(part.data) for part in node.nodes if isinstance(part, nodes.TemplateData)
        )
        charge = _call("charge", [nodes.Const(4 * num_chars)], node.lineno)
        return [nodes.ExprStmt(charge).set_lineno(node.lineno), node]

    def visit_For(self, node: nodes.For) -> Any:
        """The condition of a loop runs for items that never reach its body."""
        rewritten = self.generic_visit(node)
        if node.test is not None:
            node.test = nodes.And(_clock(), node.test).set_lineno(node.lineno)
        return rewritten

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        """The operator ~."""
        self.generic_visit(node)
        return _call("glue", node.nodes, node.lineno)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        """Slices."""
        self.generic_visit(node)
        if not isinstance(node.arg, nodes.Slice):
            return node
        bounds = [part or nodes.Const(None) for part in _slice_parts(node.arg)]
        return _call("cut", [node.node, *bounds], node.lineno)

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        """Comparisons and `in`."""
        self.generic_visit(node)
        node.expr = _call("sized", [node.expr], node.lineno)
        for operand in node.ops:
            operand.expr = _call("sized", [operand.expr], node.lineno)
        return node

    def visit_Pair(self, node: nodes.Pair) -> nodes.Node:
        """Keys of a dict."""
        self.generic_visit(node)
        node.key = _call("sized", [node.key], node.lineno)
        return node


def _slice_parts(part: nodes.Slice) -> tuple[nodes.Expr | None, ...]:
    return part.start, part.stop, part.step


def _clock() -> nodes.Expr:
    return nodes.EnvironmentAttribute("clock")


def _look_at_clock(lineno: int) -> nodes.ExprStmt:
    statement = nodes.ExprStmt(_clock())
    statement.set_lineno(lineno)
    return statement


def _call(name: str, arguments: list[nodes.Expr], lineno: int) -> nodes.Call:
    call = nodes.Call(nodes.EnvironmentAttribute(name), arguments, [], None, None)
    call.set_lineno(lineno)
    return call
