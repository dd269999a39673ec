"""Modules replaced by class in a tree of torch modules, in the two ways that MosaicML Composer has done it: recursively in
each parent (early versions), and from a list of all modules with their parents (later ones). Written anew from what they
do. Each step replaces half of the leaves, there and back again, so that all steps do the same work."""
from torch import nn


def recursively(module, policies, indices, pairs):
    for name, child in list(module.named_children()):
        policy = policies.get(type(child))
        fresh = None
        if policy is not None:
            fresh = policy(child, indices[type(child)])
            indices[type(child)] += 1
        if fresh is None:
            recursively(child, policies, indices, pairs)
        else:
            setattr(module, name, fresh)
            pairs.append((child, fresh))


def from_list(module, policies, indices, pairs):
    parents, order = {}, []

    def collect(parent):
        for name, child in parent.named_children():
            places = parents.setdefault(child, [])
            places.append((parent, name))
            if len(places) == 1:
                order.append(child)
                collect(child)

    collect(module)
    for child in order:
        for cls, policy in policies.items():
            if not isinstance(child, cls):
                continue
            fresh = policy(child, indices[cls])
            indices[cls] += 1
            if fresh is not None:
                for parent, name in parents[child]:
                    setattr(parent, name, fresh)
                pairs.append((child, fresh))


def surgery(arguments):
    containers = arguments.number("containers", 1000)
    model = nn.Sequential(*[nn.Sequential(*[nn.ReLU() if k % 2 == 0 else nn.Sigmoid() for k in range(100)])
                            for _ in range(containers)])
    replace = {"recursive": recursively, "list": from_list}[arguments["form"]]
    classes = [nn.ReLU, nn.Identity]

    def step():
        old, new = classes
        pairs = []
        replace(model, {old: lambda module, index: new()}, {old: 0}, pairs)
        assert len(pairs) == 50 * containers
        classes.reverse()

    return step, 0
