# SPDX-License-Identifier: MIT
"""Packed checkpoints read by numpy alone, and small models to make them of."""

import json

import numpy as np

BLOCKS = {"Q8_0": (32, 34), "Q4_0": (32, 18), "Q4_1": (32, 20), "TQ2_0": (256, 66), "TQ1_0": (256, 54),
          "NF4": (64, 33)}  # weights, bytes
STORED = {"F32": "<f4", "F64": "<f8", "F16": "<f2", "BF16": "<u2"}


def _f16(blocks, at):
    return blocks[:, at:at + 2].copy().view("<f2").astype(np.float64)


def _nibbles(codes):
    return np.concatenate([codes & 15, codes >> 4], axis=1).astype(np.float64)


def _tq2_0(blocks):
    codes = np.empty((len(blocks), 256))
    for half in range(2):
        for n in range(4):
            codes[:, 128 * half + 32 * n:][:, :32] = blocks[:, 32 * half:][:, :32] >> (2 * n) & 3
    return codes - 1


def _tq1_0(blocks):
    codes = np.empty((len(blocks), 256))
    for first, begin, count, digits in ((0, 0, 32, 5), (160, 32, 16, 5), (240, 48, 4, 4)):
        part = blocks[:, begin:begin + count].astype(np.int64)
        for n in range(digits):
            codes[:, first + count * n:][:, :count] = (part * 3**n % 256) * 3 // 256
    return codes - 1


# bitsandbytes, get_4bit_type("nf4")
NF4 = np.array([-1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
                -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
                0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0], np.float32)


def _dynamic_map():
    """bitsandbytes, create_dynamic_map(): in float, and each boundary rounded once."""
    positive = []
    for decade in range(7):
        parts = 2**decade
        step = float((np.float32(1) - np.float32(0.1)) / np.float32(parts))
        bounds = np.float32([float(np.float32(0.1)) + step * i if i < (parts + 1) // 2 else 1 - step * (parts - i)
                             for i in range(parts + 1)])
        positive += list(np.float32(10.0**(decade - 6)) * ((bounds[:-1] + bounds[1:]) / np.float32(2)))
    return np.sort(np.float32(positive + [-value for value in positive] + [0, 1]))


def _nf4(blocks, tail):
    numbers = tail.view("<f4")
    nested = np.repeat(numbers[1:], 256)[:len(blocks)]
    scale = _dynamic_map()[blocks[:, 0]] * nested + numbers[0]
    codes = np.stack([blocks[:, 1:] >> 4, blocks[:, 1:] & 15], axis=2).reshape(-1, 64)
    return NF4[codes].astype(np.float64) * scale[:, None].astype(np.float64)


def scales(kind, blocks):
    """d of every block."""
    at = {"TQ2_0": 64, "TQ1_0": 52}.get(kind, 0)
    return _f16(blocks, at)[:, 0]


def _weights(kind, blocks):
    d = scales(kind, blocks)[:, None]
    if kind == "Q8_0":
        return d * blocks[:, 2:].view(np.int8)
    if kind == "Q4_0":
        return d * (_nibbles(blocks[:, 2:]) - 8)
    if kind == "Q4_1":
        return d * _nibbles(blocks[:, 4:]) + _f16(blocks, 2)
    return d * (_tq2_0 if kind == "TQ2_0" else _tq1_0)(blocks)


class Packed:
    """A tensor of a packed checkpoint: its type, its bytes and, of quantised ones, the blocks, one a row."""

    def __init__(self, entry, data, quantized):
        self.data = data
        self.kind = entry["dtype"]
        self.shape = entry["shape"]
        if quantized:
            self.kind, *extents = quantized.split()
            self.shape = [int(extent) for extent in extents]
            weights, size = BLOCKS[self.kind]
            end = self.shape[0] * -(-self.shape[1] // weights) * size
            self.blocks = np.frombuffer(data[:end], np.uint8).reshape(-1, size)
            self.tail = np.frombuffer(data[end:], np.uint8)

    def weights(self):
        """Their exact values."""
        if self.kind in BLOCKS:
            weights = _nf4(self.blocks, self.tail) if self.kind == "NF4" else _weights(self.kind, self.blocks)
            return weights.reshape(self.shape[0], -1)[:, :self.shape[1]]
        stored = np.frombuffer(self.data, STORED[self.kind]).reshape(self.shape)
        if self.kind == "BF16":
            return (stored.astype("<u4") << 16).view("<f4").astype(np.float64)
        return stored.astype(np.float64)


def read_packed(folder):
    """The tensors of a folder by name."""
    data = (folder / "model.safetensors").read_bytes()
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + length])
    metadata = header.pop("__metadata__", {})
    return {name: Packed(entry, data[8 + length:][slice(*entry["data_offsets"])],
                         metadata.get("kformer.quantized." + name)) for name, entry in header.items()}


CONFIG = {"model_type": "llama", "hidden_size": 48, "intermediate_size": 300, "num_attention_heads": 4,
          "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": 40, "max_position_embeddings": 64,
          "tie_word_embeddings": False}


def layer_shapes(config):
    """The extents of a layer's weights, by name."""
    hidden, inner = config["hidden_size"], config["intermediate_size"]
    kv = hidden // config["num_attention_heads"] * config["num_key_value_heads"]
    return {"input_layernorm": (hidden,), "self_attn.q_proj": (hidden, hidden), "self_attn.k_proj": (kv, hidden),
            "self_attn.v_proj": (kv, hidden), "self_attn.o_proj": (hidden, hidden), "post_attention_layernorm": (hidden,),
            "mlp.gate_proj": (inner, hidden), "mlp.up_proj": (inner, hidden), "mlp.down_proj": (hidden, inner)}


def random_model(seed=1, config=CONFIG):
    """Weights of a model with two layers, whose rows do not fill their last block, by name."""
    rng = np.random.default_rng(seed)
    table = (config["vocab_size"], config["hidden_size"])
    shapes = {"model.embed_tokens": table, "lm_head": table, "model.norm": table[1:]}
    shapes |= {f"model.layers.{n}.{name}": shape for n in range(2) for name, shape in layer_shapes(config).items()}
    return {f"{name}.weight": rng.normal(size=shape).astype("<f4") for name, shape in shapes.items()}


def write_model(folder, tensors, kind="F32", **config):
    """A checkpoint with its numbers stored as that type (of BF16 the upper halves), and changes of its configuration."""
    header, data = {}, b""
    for name, array in tensors.items():
        stored = array.astype("<f4").view("<u4") >> 16 if kind == "BF16" else array
        part = stored.astype(STORED[kind]).tobytes()
        header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(part)]}
        data += part
    text = json.dumps(header).encode()
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(CONFIG | config))
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)


GGUF_TYPES = {"F32": 0, "Q4_0": 2, "Q4_1": 3, "Q8_0": 8, "TQ1_0": 34, "TQ2_0": 35}


def write_gguf(path, tensors, config=CONFIG):
    """The same model as a GGUF file of architecture llama, whose rows of q and k are paired neighbour by neighbour. Tensors
    are arrays, or those of a packed checkpoint."""
    def text(value):
        return len(value).to_bytes(8, "little") + value.encode()

    def u32(value):
        return value.to_bytes(4, "little")

    names = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}
    parts = dict(zip(layer_shapes(config), ("attn_norm", "attn_q", "attn_k", "attn_v", "attn_output", "ffn_norm", "ffn_gate", "ffn_up",
                             "ffn_down")))
    names |= {f"model.layers.{n}.{part}": f"blk.{n}.{short}" for n in range(2) for part, short in parts.items()}
    integers = {"embedding_length": config["hidden_size"], "feed_forward_length": config["intermediate_size"],
                "block_count": 2, "attention.head_count": config["num_attention_heads"],
                "attention.head_count_kv": config["num_key_value_heads"], "context_length": 64}
    pairs = config["hidden_size"] // config["num_attention_heads"] // 2
    metadata = [text("general.architecture") + u32(8) + text("llama"),
                text("llama.attention.layer_norm_rms_epsilon") + u32(6) + np.float32(1e-6).tobytes()]
    metadata += [text("llama." + key) + u32(4) + u32(value) for key, value in integers.items()]
    head, data = b"", b""
    for name, tensor in tensors.items():
        shape, kind, array = tensor.shape, getattr(tensor, "kind", "F32"), tensor
        if isinstance(tensor, Packed):
            array = np.frombuffer(tensor.data, np.uint8 if kind in BLOCKS else "<f4")
            array = array.reshape(shape if kind == "F32" else (shape[0], -1))
        if "q_proj" in name or "k_proj" in name:
            array = array.reshape(-1, 2, pairs, array.shape[1]).swapaxes(1, 2)
        head += text(names[name.removesuffix(".weight")] + ".weight") + u32(len(shape))
        head += b"".join(extent.to_bytes(8, "little") for extent in reversed(shape))
        head += u32(GGUF_TYPES[kind]) + len(data).to_bytes(8, "little")
        data += array.tobytes()
        data += b"\0" * (-len(data) % 32)
    file = b"GGUF" + u32(3) + len(tensors).to_bytes(8, "little") + len(metadata).to_bytes(8, "little")
    file += b"".join(metadata) + head
    path.write_bytes(file + b"\0" * (-len(file) % 32) + data)


def read_gguf(path):
    """The metadata and the tensors, in F32, of a GGUF file without lists."""
    data, at = path.read_bytes(), 24

    def take(size):
        nonlocal at
        at += size
        return data[at - size:at]

    def number(size):
        return int.from_bytes(take(size), "little")

    def text():
        return take(number(8)).decode()

    assert data[:4] == b"GGUF"
    tensors, entries = (int.from_bytes(data[begin:begin + 8], "little") for begin in (8, 16))
    kinds = {4: lambda: number(4), 6: lambda: float(np.frombuffer(take(4), "<f4")[0]), 8: text}
    metadata = {}
    for _ in range(entries):
        key = text()
        metadata[key] = kinds[number(4)]()
    places = {}
    for _ in range(tensors):
        name = text()
        shape = [number(8) for _ in range(number(4))][::-1]
        assert number(4) == GGUF_TYPES["F32"], name
        places[name] = shape, number(8)
    begin = at + -at % metadata.get("general.alignment", 32)
    return metadata, {name: np.frombuffer(data, "<f4", int(np.prod(shape)), begin + offset).reshape(shape)
                      for name, (shape, offset) in places.items()}
