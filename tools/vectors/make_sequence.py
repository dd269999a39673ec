#!/usr/bin/python3
"""Writes tests/vectors/sequence.json: what PyTorch computes for embeddings, products of batches, attention and recurrent
layers. Read make_kernels.py first: format and use are the same.

    /usr/bin/python3 tools/vectors/make_sequence.py
"""
import sys

import torch
import torch.nn.functional as F

sys.dont_write_bytecode = True
from make_kernels import File, backward, values


def products(out):
    for a_shape, b_shape in [((3, 4, 5), (3, 5, 2)), ((2, 3, 4, 5), (2, 3, 5, 3)), ((2, 3, 4, 5), (5, 2)),
                             ((4, 5), (3, 5, 2)), ((3, 1, 4, 5), (2, 5, 1)), ((7,), (7,)), ((5,), (3, 5, 2)),
                             ((2, 3, 5), (5,)), ((2, 1, 3, 1, 2, 2), (3, 2, 2, 1))]:
        a, b = values(*a_shape), values(*b_shape)
        out.add("matmul", "%s by %s" % (a_shape, b_shape), {}, a=a, b=b, **backward(a @ b, a=a, b=b))


def embeddings(out):
    for shape, rows, width, padding in [((7,), 5, 3, None), ((2, 3), 4, 5, 0), ((3, 2, 4), 6, 2, 5), ((), 3, 4, None)]:
        index, w = torch.randint(0, rows, shape), values(rows, width)
        y = F.embedding(index, w, padding_idx=padding)
        out.add("embedding", "%s of %d, padding %s" % (shape, rows, padding), dict(padding=-1 if padding is None else padding),
                index=index, w=w, **backward(y, w=w))


def attention(out):
    """By its definition: PyTorch 1.13 has no public function."""
    for batch, q_len, k_len, width, v_width, mask_shape, causal, scale in [
            ((2, 3), 4, 6, 5, 5, None, False, 0), ((2, 3), 5, 5, 4, 4, None, True, 0), ((3,), 4, 2, 3, 5, None, False, 0.5),
            ((2, 2), 3, 4, 4, 4, (3, 4), False, 0), ((2, 2), 4, 4, 4, 2, (2, 1, 1, 4), True, 0), ((), 6, 4, 3, 3, None, True, 0)]:
        q, k, v = values(*batch, q_len, width), values(*batch, k_len, width), values(*batch, k_len, v_width)
        inputs = dict(q=q, k=k, v=v)
        scores = (scale or width ** -0.5) * q @ k.transpose(-2, -1)
        if mask_shape:
            inputs["mask"] = values(*mask_shape)
            scores = scores + inputs["mask"]
        if causal:
            scores = scores.masked_fill(~torch.ones(q_len, k_len, dtype=torch.bool).tril(), float("-inf"))
        y = torch.softmax(scores, -1) @ v
        out.add("attention", "%s %d to %d, mask %s%s" % (batch, q_len, k_len, mask_shape, " causal" if causal else ""),
                dict(causal=causal, scale=scale), **inputs, **backward(y, **inputs))


def module_case(out, op, name, params, module, x, *more):
    """A module in double, with its parameters; the output is its first one plus the products of all others."""
    module = module.double()
    inputs = {"x": x}
    for i, t in enumerate(more):
        inputs["state%d" % i] = t
    for key, p in module.named_parameters():
        with torch.no_grad():
            p.copy_(values(*p.shape, low=-16, high=16))
        inputs[key] = p
    if op in ("lstm", "gru"):
        states = list(more)
        y, last = module(x, (tuple(states) if op == "lstm" else states[0]) if states else None)
        last = last if op == "lstm" else (last,)
        for t in last:
            y = y + t.sum(dim=0).sum(dim=0).repeat(y.shape[-1] // t.shape[-1])
    elif op == "mha":
        y = module(x, *(more or (x, x)), need_weights=False)[0]
    else:
        y = module(x, (tuple(more) if op == "lstm_cell" else more[0]) if more else None)
        y = y[0] * y[1] if op == "lstm_cell" else y
    out.add(op, name, params, **inputs, **backward(y, **inputs))


def recurrent(out):
    for op, cls, n_states in [("lstm", torch.nn.LSTM, 2), ("gru", torch.nn.GRU, 1)]:
        for layers, both, first, bias, given in [(1, False, False, True, False), (1, False, True, True, True),
                                                 (2, True, False, True, True), (3, False, False, False, False),
                                                 (1, True, True, False, True)]:
            steps, n, width, units = 4, 2, 3, 2
            params = dict(input_size=width, hidden_size=units, num_layers=layers, bidirectional=both, batch_first=first, bias=bias)
            x = values(n, steps, width) if first else values(steps, n, width)
            states = [values(layers * (2 if both else 1), n, units) for _ in range(n_states if given else 0)]
            module_case(out, op, "%d layers%s%s%s%s" % (layers, " both" if both else "", " first" if first else "",
                                                        "" if bias else " no bias", " states" if given else ""),
                        params, cls(**params), x, *states)
    for op, cls, n_states in [("lstm_cell", torch.nn.LSTMCell, 2), ("gru_cell", torch.nn.GRUCell, 1)]:
        for bias, given in [(True, True), (False, False)]:
            params = dict(input_size=4, hidden_size=3, bias=bias)
            module_case(out, op, "bias %s states %s" % (bias, given), params, cls(**params), values(2, 4),
                        *[values(2, 3) for _ in range(n_states if given else 0)])


def multihead(out):
    for first, bias, lengths in [(True, True, None), (False, True, (3, 5)), (True, False, (4, 2))]:
        params = dict(embed_dim=6, num_heads=3, batch_first=first, bias=bias)
        shape = lambda n: (2, n, 6) if first else (n, 2, 6)
        more = [] if lengths is None else [values(*shape(lengths[1])) for _ in range(2)]
        module_case(out, "mha", "first %s bias %s %s" % (first, bias, lengths), params,
                    torch.nn.MultiheadAttention(**params), values(*shape(lengths[0] if lengths else 4)), *more)


if __name__ == "__main__":
    sequence = File("sequence")
    for family in (products, embeddings, attention, recurrent, multihead):
        family(sequence)
    sequence.write()
