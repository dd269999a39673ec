"""Losses of a training, the same weights and batches for every run of the same arguments; data=FILE writes them for
engraft, as a safetensors file (8 bytes: length of the header; the header, JSON; the numbers)."""
import json

import torch
from torch.nn import functional as F

from darts import Supernet
from nets import net
from peer import count


def save_safetensors(path, tensors):
    types, header, end = {torch.float32: "F32", torch.int64: "I64"}, {}, 0
    for name, t in tensors.items():
        begin, end = end, end + t.numel() * t.element_size()
        header[name] = {"dtype": types[t.dtype], "shape": list(t.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for t in tensors.values():
            f.write(t.detach().contiguous().numpy().tobytes())


def named(network):
    """The state under engraft's names: "net.<name>", and of a supernet "alphas.<key>"."""
    prefix = "" if isinstance(network, Supernet) else "net."
    return {prefix + name: t for name, t in network.state_dict().items()}


def make_batches(shape, steps):
    """Noisy pictures of ten kinds, so that there is something to learn."""
    kinds = torch.randn(10, *shape[1:])
    labels = [torch.randint(0, 10, shape[:1]) for _ in range(steps)]
    return [(torch.randn(shape) + kinds[y], y) for y in labels]


def load_safetensors(path):
    types = {"F32": torch.float32, "F64": torch.float64, "I64": torch.int64}
    with open(path, "rb") as f:
        header = json.loads(f.read(int.from_bytes(f.read(8), "little")))
        data = bytearray(f.read())
    header.pop("__metadata__", None)
    return {name: torch.frombuffer(data[slice(*t["data_offsets"])], dtype=types[t["dtype"]]).reshape(t["shape"])
            for name, t in header.items()}


def make(arguments):
    """A network and `steps` batches for it."""
    if arguments["net"] == "darts":
        size = arguments.number("size", 32)
        network = Supernet(arguments.number("channels", 16), arguments.number("layers", 8))
        shape = (arguments.number("batch", 64), 3, size, size)
    else:
        network, shape = net(arguments)
    return network, make_batches(shape, arguments.number("steps", 5))


def save_data(path, network, batches):
    parts = {f"{name}.{i}": t for i, pair in enumerate(batches) for name, t in zip("xy", pair)}
    save_safetensors(path, {**named(network), **parts})


def make_optimizer(network, rate):
    return torch.optim.SGD(network.parameters(), lr=rate, momentum=0.9, weight_decay=3e-4)


def curve(arguments):
    network, batches = make(arguments)
    if "data" in arguments:
        save_data(arguments["data"], network, batches)
    exact = arguments.get("dtype") == "float64"
    network = arguments.place(network.double() if exact else network)
    optimizer = make_optimizer(network, float(arguments["lr"]))
    losses = []

    def step():
        x, y = batches[len(losses)]
        loss = F.cross_entropy(network(arguments.place(x.double() if exact else x)), y)
        losses.append(loss.item())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step, count(network), {"losses": losses}
