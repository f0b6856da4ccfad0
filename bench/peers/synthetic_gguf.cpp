// synthetic_gguf SHAPE WEIGHTS FILE [SEED]: a GGUF file of a real Llama shape with random weights.
//
// The speed of a model depends on its shapes and types, not on its values, so such a file is what a
// benchmark needs when no trained one is at hand. The values are still ordinary ones: scales are
// normal numbers that give every matrix rows of a norm near 1, so activations stay finite, and no
// operand is a subnormal that a processor might handle in a slow way. The same arguments always
// give the same bytes. The file is written in pieces of a few megabytes.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "base/half.h"
#include "base/rng.h"
#include "format/gguf_writer.h"

namespace trine {
namespace {

struct Shape {
  std::string_view name;
  std::string_view title;
  std::uint32_t hidden, layers, heads, kv_heads, ffn, vocab;
};

constexpr std::array<Shape, 3> kShapes{{{"tiny", "one small layer", 256, 1, 4, 2, 512, 512},
                                        {"1.1b", "TinyLlama-1.1B", 2048, 22, 32, 4, 5632, 32000},
                                        {"7b", "Llama-2-7B", 4096, 32, 32, 32, 11008, 32000}}};
// Room for the benchmarks at a depth of 8192 tokens, whatever the shape's trained model allows.
constexpr std::uint32_t kContext = 16384;

// Which types the matrices have, as llama-quantize chooses them for this name.
struct Weights {
  std::string_view name;
  std::uint32_t file_type;  // llama.cpp's number of the mixture
  DType matrices;
  DType head;
  bool more_bits;  // Q6_K for attn_v and ffn_down in the first, the last and every third layer
};

constexpr std::array<Weights, 5> kWeights{{{"f16", 1, DType::kF16, DType::kF16, false},
                                           {"q4_0", 2, DType::kQ4_0, DType::kQ6K, false},
                                           {"q8_0", 7, DType::kQ8_0, DType::kQ8_0, false},
                                           {"q4_k", 14, DType::kQ4K, DType::kQ6K, false},
                                           {"q4_k_m", 15, DType::kQ4K, DType::kQ6K, true}}};

// A stream of random 64-bit words (SplitMix64: Steele, Lea, Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014).
class Words {
 public:
  explicit Words(std::uint64_t start) : state_(start) {}

  std::uint64_t next() {
    state_ += 0x9E3779B97F4A7C15u;
    std::uint64_t word = state_;
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9u;
    word = (word ^ (word >> 27)) * 0x94D049BB133111EBu;
    return word ^ (word >> 31);
  }

  void fill(std::vector<std::uint8_t>& out) {
    for (std::size_t at = 0; at < out.size(); at += sizeof(std::uint64_t)) {
      const std::uint64_t word = next();
      std::memcpy(out.data() + at, &word, std::min(sizeof(word), out.size() - at));
    }
  }

 private:
  std::uint64_t state_;
};

std::uint16_t load_u16(const std::uint8_t* bytes) {
  std::uint16_t value = 0;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

void store_u16(std::uint8_t* bytes, std::uint16_t value) {
  std::memcpy(bytes, &value, sizeof(value));
}

// The random 16 bits at `bytes` become a scale of either sign and 0.75 to 1.25 times `size`.
float put_scale(std::uint8_t* bytes, float size) {
  const std::uint16_t random = load_u16(bytes);
  const float factor = 0.75f + static_cast<float>(random & 0xffu) / 512.0f;
  const float scale = ((random & 0x100u) != 0 ? -size : size) * factor;
  store_u16(bytes, f32_to_f16(scale));
  return scale;
}

// Each of these turns random bytes into blocks whose weights have a root mean square near `rms`.
// The constants are the root mean squares of the codes times their scales.
void shape_q4_0(std::uint8_t* block, float rms) {
  put_scale(block, rms / 4.64f);
}

void shape_q8_0(std::uint8_t* block, float rms) {
  put_scale(block, rms / 73.6f);
  for (int i = 2; i < 34; ++i) {
    block[i] = block[i] == 0x80 ? 0x81 : block[i];  // quantizers do not use -128
  }
}

void shape_q4_k(std::uint8_t* block, float rms) {
  const float scale = put_scale(block, rms / 63.5f);
  // The mean of d s q is taken off by the mean of dmin n: q is 7.5 on average.
  store_u16(block + 2, f32_to_f16(7.5f * scale));
  for (int i = 4; i < 12; ++i) {
    block[i] &= 0x0f;  // scales and minima from 0 to 15, so that d stays a normal number
  }
}

void shape_q6_k(std::uint8_t* block, float rms) {
  for (int i = 192; i < 208; ++i) {
    const int size = 1 + (block[i] & 7);
    block[i] = static_cast<std::uint8_t>((block[i] & 0x80) != 0 ? -size : size);
  }
  put_scale(block + 208, rms / 93.3f);
}

void shape_f16(std::uint8_t* value, float rms) {
  // Sign and mantissa as they are; one of two neighbouring exponents.
  const int exponent = 15 + static_cast<int>(std::lround(std::log2(rms / 2.42f)));
  const std::uint16_t random = load_u16(value);
  const auto shifted = static_cast<std::uint32_t>(exponent) + ((random >> 10) & 1u);
  store_u16(value, static_cast<std::uint16_t>((random & 0x83ffu) | (shifted << 10)));
}

// A weight of a norm: near 1.
void shape_f32(std::uint8_t* value, float /*rms*/) {
  const float weight = 0.9f + static_cast<float>(load_u16(value)) * (0.2f / 65535.0f);
  std::memcpy(value, &weight, sizeof(weight));
}

using ShapeBlock = void (*)(std::uint8_t* block, float rms);

ShapeBlock shape_of(DType dtype) {
  switch (dtype) {
    case DType::kQ4_0:
      return &shape_q4_0;
    case DType::kQ8_0:
      return &shape_q8_0;
    case DType::kQ4K:
      return &shape_q4_k;
    case DType::kQ6K:
      return &shape_q6_k;
    case DType::kF16:
      return &shape_f16;
    default:
      return &shape_f32;
  }
}

bool gets_more_bits(std::uint32_t layer, std::uint32_t layers) {
  const std::uint32_t eighth = layers / 8;
  return layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
}

std::vector<GgufTensorSpec> tensors_of(const Shape& shape, const Weights& weights) {
  const std::int64_t hidden = shape.hidden;
  const std::int64_t kv = hidden / shape.heads * shape.kv_heads;
  const std::int64_t ffn = shape.ffn;
  const std::int64_t vocab = shape.vocab;
  std::vector<GgufTensorSpec> out;
  out.push_back({"token_embd.weight", weights.matrices, {vocab, hidden}});
  for (std::uint32_t layer = 0; layer < shape.layers; ++layer) {
    const DType wide =
        weights.more_bits && gets_more_bits(layer, shape.layers) ? DType::kQ6K : weights.matrices;
    const auto add = [&](std::string_view name, DType dtype, std::vector<std::int64_t> dims) {
      out.push_back({fmt::format("blk.{}.{}.weight", layer, name), dtype, std::move(dims)});
    };
    add("attn_norm", DType::kF32, {hidden});
    add("attn_q", weights.matrices, {hidden, hidden});
    add("attn_k", weights.matrices, {kv, hidden});
    add("attn_v", wide, {kv, hidden});
    add("attn_output", weights.matrices, {hidden, hidden});
    add("ffn_norm", DType::kF32, {hidden});
    add("ffn_gate", weights.matrices, {ffn, hidden});
    add("ffn_up", weights.matrices, {ffn, hidden});
    add("ffn_down", wide, {hidden, ffn});
  }
  out.push_back({"output_norm.weight", DType::kF32, {hidden}});
  out.push_back({"output.weight", weights.head, {vocab, hidden}});
  return out;
}

// A sentencepiece vocabulary: three control tokens, the 256 bytes, then short letter strings, with
// and without the mark of a word's start, earlier ones first in merging.
std::vector<std::string> pieces_of(std::uint32_t vocab) {
  std::vector<std::string> out = {"<unk>", "<s>", "</s>"};
  for (int byte = 0; byte < 256; ++byte) {
    out.push_back(fmt::format("<0x{:02X}>", byte));
  }
  out.emplace_back("▁");
  for (char c = '!'; c <= '~'; ++c) {
    out.emplace_back(1, c);
  }
  constexpr std::string_view kLetters = "etaoinshrdlcumwfgypbvkjxqz";
  std::vector<std::string> strings = {""};
  while (out.size() < vocab) {
    std::vector<std::string> longer;
    longer.reserve(strings.size() * kLetters.size());
    for (const std::string& head : strings) {
      for (const char letter : kLetters) {
        longer.push_back(head + letter);
      }
    }
    for (const std::string& text : longer) {
      out.push_back("▁" + text);
      if (text.size() > 1) {
        out.push_back(text);
      }
    }
    strings = std::move(longer);
  }
  out.resize(vocab);
  return out;
}

std::vector<GgufMetadata::Pair> metadata_of(const Shape& shape, const Weights& weights,
                                            std::uint64_t seed) {
  constexpr std::size_t kControl = 3;
  constexpr std::size_t kBytes = 256;
  std::vector<std::string> pieces = pieces_of(shape.vocab);
  std::vector<float> scores(pieces.size(), 0.0f);
  std::vector<std::int32_t> types(pieces.size(), 1);
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (i < kControl) {
      types[i] = i == 0 ? 2 : 3;
    } else if (i < kControl + kBytes) {
      types[i] = 6;
    } else {
      scores[i] = -static_cast<float>(i - kControl - kBytes);
    }
  }
  return {
      {"general.architecture", std::string("llama")},
      {"general.name", fmt::format("synthetic {} {} seed {}", shape.title, weights.name, seed)},
      {"general.file_type", weights.file_type},
      {"general.quantization_version", std::uint32_t{2}},
      {"llama.vocab_size", shape.vocab},
      {"llama.context_length", kContext},
      {"llama.embedding_length", shape.hidden},
      {"llama.block_count", shape.layers},
      {"llama.feed_forward_length", shape.ffn},
      {"llama.rope.dimension_count", shape.hidden / shape.heads},
      {"llama.rope.freq_base", 10000.0f},
      {"llama.attention.head_count", shape.heads},
      {"llama.attention.head_count_kv", shape.kv_heads},
      {"llama.attention.layer_norm_rms_epsilon", 1e-5f},
      {"tokenizer.ggml.model", std::string("llama")},
      {"tokenizer.ggml.pre", std::string("default")},
      {"tokenizer.ggml.tokens", GgufArray(std::move(pieces))},
      {"tokenizer.ggml.scores", GgufArray(std::move(scores))},
      {"tokenizer.ggml.token_type", GgufArray(std::move(types))},
      {"tokenizer.ggml.bos_token_id", std::uint32_t{1}},
      {"tokenizer.ggml.eos_token_id", std::uint32_t{2}},
      {"tokenizer.ggml.unknown_token_id", std::uint32_t{0}},
      {"tokenizer.ggml.add_bos_token", true},
      {"tokenizer.ggml.add_eos_token", false},
  };
}

Status write_tensor(GgufWriter& writer, const GgufTensorSpec& tensor, std::uint64_t start) {
  const DTypeInfo& info = dtype_info(tensor.dtype);
  const auto block_bytes = static_cast<std::size_t>(info.block_bytes);
  std::int64_t elems = 1;
  for (const std::int64_t dim : tensor.shape) {
    elems *= dim;
  }
  const float rms = 1.0f / std::sqrt(static_cast<float>(tensor.shape.back()));
  const ShapeBlock shape_block = shape_of(tensor.dtype);
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  std::size_t left = static_cast<std::size_t>(elems / info.block_elems);
  Words words(start);
  std::vector<std::uint8_t> bytes;
  while (left > 0) {
    const std::size_t blocks = std::min(left, kPiece / block_bytes);
    bytes.resize(blocks * block_bytes);
    words.fill(bytes);
    for (std::size_t block = 0; block < blocks; ++block) {
      shape_block(bytes.data() + block * block_bytes, rms);
    }
    TRINE_TRY(writer.append(tensor.name, std::as_bytes(std::span(bytes))));
    left -= blocks;
  }
  return {};
}

template <typename Entry, std::size_t kCount>
Result<Entry> named(const std::array<Entry, kCount>& entries, std::string_view what,
                    std::string_view name) {
  std::string known;
  for (const Entry& entry : entries) {
    if (entry.name == name) {
      return entry;
    }
    known += fmt::format("{}{}", known.empty() ? "" : ", ", entry.name);
  }
  return fail(ErrorCode::kInvalidArgument, "{} '{}': there are {}", what, name, known);
}

Status run(std::span<char* const> args) {
  if (args.size() < 3 || args.size() > 4) {
    return fail(ErrorCode::kInvalidArgument, "usage: synthetic_gguf SHAPE WEIGHTS FILE [SEED]");
  }
  TRINE_TRY_ASSIGN(const Shape shape, named(kShapes, "shape", args[0]));
  TRINE_TRY_ASSIGN(const Weights weights, named(kWeights, "weights", args[1]));
  std::uint64_t seed = 1;
  if (args.size() == 4) {
    const std::string_view text = args[3];
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seed);
    if (error != std::errc() || end != text.data() + text.size()) {
      return fail(ErrorCode::kInvalidArgument, "seed '{}': give a whole number", text);
    }
  }
  const std::vector<GgufTensorSpec> tensors = tensors_of(shape, weights);
  TRINE_TRY_ASSIGN(GgufWriter writer,
                   GgufWriter::create(args[2], metadata_of(shape, weights, seed), tensors));
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto random = philox(seed, i, RngPurpose::kTest, 0);
    const std::uint64_t start = std::uint64_t{random[0]} << 32 | random[1];
    TRINE_TRY(write_tensor(writer, tensors[i], start));
  }
  return writer.finish();
}

}  // namespace
}  // namespace trine

int main(int argc, char** argv) {
  const auto arguments = std::span(argv, static_cast<std::size_t>(argc));
  const trine::Status status = trine::run(arguments.subspan(argc > 0 ? 1 : 0));
  if (!status.has_value()) {
    std::fprintf(stderr, "error: %s\n", status.error().message.c_str());
    return trine::exit_status(status.error().code);
  }
  return 0;
}
