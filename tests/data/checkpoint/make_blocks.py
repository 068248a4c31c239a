"""Makes blocks.gguf (one tensor of each quantized type, random but valid blocks, seeded) and blocks.f32 (what the gguf package
dequantizes them to, float32, tensors in the file's order). Needs: pip install gguf==0.19.0"""
import numpy as np
import gguf
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType as Type

COLUMNS, ROWS = 256, 2
# Byte offsets of a block's half-precision scales: random bits there would give infinities.
SCALES = {
    Type.Q4_0: [0], Type.Q4_1: [0, 2], Type.Q5_0: [0], Type.Q5_1: [0, 2], Type.Q8_0: [0],
    Type.Q4_K: [0, 2], Type.Q5_K: [0, 2], Type.Q6_K: [208],
}

rng = np.random.default_rng(20260115)
writer = gguf.GGUFWriter("blocks.gguf", "llama")
writer.add_string("test.text", "na\u00efve \u2581 text")
writer.add_array("test.words", ["a", "", "b c"])
writer.add_uint32("test.count", 7)
expected = []
for kind, offsets in SCALES.items():
    elements, size = GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (ROWS * COLUMNS // elements, size), dtype=np.uint8)
    for offset in offsets:
        scale = rng.uniform(-0.1, 0.1, blocks.shape[0]).astype(np.float16)
        blocks[:, offset:offset + 2] = scale.view(np.uint8).reshape(-1, 2)
    data = blocks.reshape(ROWS, -1)
    writer.add_tensor(f"x.{kind.name}", data, raw_dtype=kind)
    expected.append(gguf.dequantize(data, kind).reshape(-1))
writer.write_header_to_file()
writer.write_kv_data_to_file()
writer.write_tensors_to_file()
writer.close()
np.concatenate(expected).astype("<f4").tofile("blocks.f32")
