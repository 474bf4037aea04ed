"""From integer sets back to IR: isl's AST builder gives small loop nests and expressions."""

from __future__ import annotations

import islpy as isl

from ...ir.expr import (
    Const,
    Node,
    Var,
    add,
    equal,
    floordiv,
    maximum,
    minimum,
    mod,
    mul,
    select,
    wrap,
)
from ...ir.plan import Nest, NestAxis
from ...ir.program import Program

_Op = isl.ast_expr_op_type


def nests_of(
    program: Program, relation: isl.Map, domain: isl.Set, names: tuple[str, ...]
) -> tuple[Nest, ...]:
    """Loop nests that visit the image of a point of `domain`, each index exactly once.

    `names` are the variables of that point; what holds for all of `domain` is not tested again."""
    image = _as_params(relation, names).range().coalesce().set_tuple_name("S")
    context = _as_params(isl.Map.from_domain(domain), names).params()
    image = image.gist_params(context)
    identity = isl.Map.identity(image.get_space().map_from_set())
    schedule = identity.intersect_domain(image).reset_tuple_id(isl.dim_type.out)
    build = isl.AstBuild.from_context(context).set_iterators(_ids(image.dim(isl.dim_type.set)))
    node = build.node_from_schedule_map(isl.UnionMap.from_map(schedule))
    return tuple(_nests(_Names(program), node, (), ()))


def expr_of(program: Program, value: isl.PwAff, names: tuple[str, ...]) -> Node:
    """The expression of a piecewise affine function of the variables `names`, on its domain."""
    domain = value.domain()
    n = value.dim(isl.dim_type.in_)
    params = value.dim(isl.dim_type.param)
    for k, name in enumerate(names):
        value = value.set_dim_id(isl.dim_type.in_, k, isl.Id("t_" + name))
    if n:
        value = value.move_dims(isl.dim_type.param, params, isl.dim_type.in_, 0, n)
    value = value.project_domain_on_params()
    context = _as_params(isl.Map.from_domain(domain), names).params()
    build = isl.AstBuild.from_context(context)
    return _expr(_Names(program), build.expr_from_pw_aff(value.gist(context).coalesce()))


def _ids(count: int) -> isl.IdList:
    ids = isl.IdList.alloc(isl.DEFAULT_CONTEXT, count)
    for k in range(count):
        ids = ids.add(isl.Id(f"t_w{k}"))
    return ids


def _as_params(m: isl.Map, names: tuple[str, ...]) -> isl.Map:
    for k, name in enumerate(names):
        m = m.set_dim_name(isl.dim_type.in_, k, "t_" + name)
    at = m.dim(isl.dim_type.param)
    return m.move_dims(isl.dim_type.param, at, isl.dim_type.in_, 0, len(names))


class _Names:
    """Back from isl's identifiers to dims and variables."""

    def __init__(self, program: Program) -> None:
        self.dims = {"d_" + d.name: d for d in program.dims}

    def node(self, name: str) -> Node:
        return self.dims[name] if name in self.dims else Var(name.removeprefix("t_"))


def _nests(
    names: _Names, node: isl.AstNode, axes: tuple[NestAxis, ...], guards: tuple[Node, ...]
) -> list[Nest]:
    kind = node.get_type()
    if kind == isl.ast_node_type.block:
        children = node.block_get_children()
        parts = [children.get_at(k) for k in range(children.n_ast_node())]
        return [n for part in parts for n in _nests(names, part, axes, guards)]
    if kind == isl.ast_node_type.user:
        call = node.user_get_expr()
        index = tuple(
            _expr(names, call.get_op_arg(k)) for k in range(1, call.get_op_n_arg())
        )
        return [Nest(axes, guards, index)]
    if kind == isl.ast_node_type.if_:
        cond = _expr(names, node.if_get_cond())
        found = _nests(names, node.if_get_then_node(), axes, (*guards, cond))
        if node.if_has_else_node():
            other = add(Const(1), mul(Const(-1), cond))
            found += _nests(names, node.if_get_else_node(), axes, (*guards, other))
        return found
    assert kind == isl.ast_node_type.for_, kind
    return _nests(names, node.for_get_body(), (*axes, _for_axis(names, node)), guards)


def _for_axis(names: _Names, node: isl.AstNode) -> NestAxis:
    var = node.for_get_iterator().get_id().get_name().removeprefix("t_")
    lo = _expr(names, node.for_get_init())
    if node.for_is_degenerate():
        return NestAxis(var, lo, add(lo, Const(1)))
    cond, step = node.for_get_cond(), _expr(names, node.for_get_inc())
    assert isinstance(step, Const)
    bound = _expr(names, cond.get_op_arg(1))
    closed = cond.get_op_type() == _Op.le
    return NestAxis(var, lo, add(bound, Const(1)) if closed else bound, step.value)


def _expr(names: _Names, e: isl.AstExpr) -> Node:
    kind = e.get_type()
    if kind == isl.ast_expr_type.int:
        return Const(int(e.get_val().to_python()))
    if kind == isl.ast_expr_type.id:
        return names.node(e.get_id().get_name())
    args = [_expr(names, e.get_op_arg(k)) for k in range(e.get_op_n_arg())]
    return _operation(e.get_op_type(), args)


def _operation(op: isl.ast_expr_op_type, args: list[Node]) -> Node:
    a = args[0]
    b = args[1] if len(args) > 1 else Const(0)
    match op:
        case _Op.add:
            return add(a, b)
        case _Op.sub:
            return add(a, mul(Const(-1), b))
        case _Op.minus:
            return mul(Const(-1), a)
        case _Op.mul:
            return mul(a, b)
        case _Op.div | _Op.fdiv_q | _Op.pdiv_q:
            return floordiv(a, b)
        case _Op.pdiv_r | _Op.zdiv_r:
            return mod(a, b)
        case _Op.min | _Op.max:
            fold = minimum if op == _Op.min else maximum
            for other in args[1:]:
                a = fold(a, other)
            return a
        case _Op.and_ | _Op.and_then:
            return minimum(a, b)
        case _Op.or_ | _Op.or_else:
            return maximum(a, b)
        case _Op.eq:
            return equal(a, b)
        case _Op.le:
            return wrap(a <= b)
        case _Op.lt:
            return wrap(a < b)
        case _Op.ge:
            return wrap(a >= b)
        case _Op.gt:
            return wrap(a > b)
        case _Op.cond | _Op.select:
            return select(a, b, args[2])
        case _:
            raise AssertionError(f"isl operation {op}")
