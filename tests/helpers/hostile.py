"""Files as an attacker would change them."""

import json
import zlib

import torch
from safetensors import safe_open
from safetensors.torch import save_file


def opened(path):
    with safe_open(path, "pt") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        return json.loads(file.metadata()["holobind"]), tensors


def hostile(path, model, change):
    """The model's file with its header and tensors changed."""
    model.save(path)
    header, tensors = opened(path)
    change(header, tensors)
    header.pop("crc32", None)  # which a hostile file would have right
    save_file({name: t.contiguous() for name, t in tensors.items()}, path, metadata={"holobind": json.dumps(header)})
    return path


def setting(*where, to):
    def change(header, tensors):
        place = header
        for key in where[:-1]:
            place = place[key]
        place[where[-1]] = to

    return change


def replacing(name, to):
    def change(header, tensors):
        tensors[name] = to(tensors[name]) if callable(to) else to

    return change


def without(name):
    return lambda header, tensors: (header if name in header else tensors).pop(name)


def bomb(size):
    return torch.frombuffer(bytearray(zlib.compress(b"a" * size, 9)), dtype=torch.uint8)
