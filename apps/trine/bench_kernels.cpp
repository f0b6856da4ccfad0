#include "apps/trine/bench_kernels.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <memory>

#include "apps/trine/bench_limits.h"
#include "apps/trine/interrupt.h"
#include "apps/trine/statistics.h"
#include "base/half.h"
#include "base/rng.h"
#include "kernels/dispatch.h"
#include "ops/ops.h"
#include "platform/huge_buffer.h"
#include "quant/pack_gguf.h"
#include "quant/packed_tile.h"

namespace trine::app {
namespace {

using kernels::CodeKind;
using kernels::PackedScheme;
using kernels::ScaleKind;

std::uint32_t random_bits(std::uint64_t seed, std::uint64_t index) {
  return philox(seed, index, RngPurpose::kTest, 0)[0];
}

void fill_tile(std::uint64_t seed, PackTile& tile) {
  std::uint64_t at = 0;
  for (std::size_t row = 0; row < kTileRows; ++row) {
    for (std::uint8_t& code : tile.codes[row]) {
      code = static_cast<std::uint8_t>(random_bits(seed, ++at));
    }
    const auto scale = [&] { return 1e-4F * static_cast<float>(1 + random_bits(seed, ++at) % 64); };
    for (std::size_t g = 0; g < 8; ++g) {
      tile.scale_f16[row][g] = f32_to_f16(scale());
      tile.min_f16[row][g] = f32_to_f16(-scale());
      tile.zero[row][g] = 8;
      tile.scale_f32[row][g] = scale();
    }
    tile.super_f16[row] = f32_to_f16(scale());
    tile.super_min_f16[row] = f32_to_f16(scale());
    for (std::size_t g = 0; g < 16; ++g) {
      tile.sub[row][g] = static_cast<std::uint8_t>(1 + random_bits(seed, ++at) % 63);
      tile.sub_min[row][g] = static_cast<std::uint8_t>(random_bits(seed, ++at) % 64);
    }
  }
}

// As many matrices of one scheme and shape as fill the wanted bytes, all with the same random
// block.
struct Weights {
  HugeBuffer memory;
  std::vector<ops::WeightView> views;
  std::int64_t matrix_bytes = 0;
};

Result<Weights> make_weights(ThreadTeam& team, const PackedScheme& scheme, std::int64_t n,
                             std::int64_t k, std::int64_t bytes) {
  const std::int64_t block_bytes = kernels::packed_block_bytes(scheme, k);
  const std::int64_t blocks = (n + kernels::kPackedBlockRows - 1) / kernels::kPackedBlockRows;
  Weights out;
  out.matrix_bytes = block_bytes * blocks;
  const std::int64_t count = std::max<std::int64_t>(1, bytes / out.matrix_bytes);
  TRINE_TRY_ASSIGN(out.memory,
                   HugeBuffer::allocate(static_cast<std::size_t>(count * out.matrix_bytes)));
  std::uint8_t* const data = out.memory.data();
  const auto tile = std::make_unique<PackTile>();
  fill_tile(1, *tile);
  std::uint8_t* end = data;
  const std::int64_t padded = kernels::packed_padded_cols(k);
  for (std::int64_t col = 0; col < padded; col += static_cast<std::int64_t>(kTileCols)) {
    end =
        write_tile(scheme, *tile, col,
                   std::min<std::int64_t>(padded - col, static_cast<std::int64_t>(kTileCols)), end);
  }
  team.run([&](int thread_idx) {
    const auto [first, last] = split_range(count * blocks, 1, thread_idx, team.num_threads());
    for (std::int64_t b = std::max<std::int64_t>(first, 1); b < last; ++b) {
      std::memcpy(data + b * block_bytes, data, static_cast<std::size_t>(block_bytes));
    }
  });
  for (std::int64_t i = 0; i < count; ++i) {
    ops::WeightView view;
    view.rows = n;
    view.cols = k;
    view.packed = {scheme, n, k, data + i * out.matrix_bytes};
    out.views.push_back(view);
  }
  return out;
}

// The same of a float type: every weight is 2^-7.
Result<Weights> make_plain(DType dtype, std::int64_t n, std::int64_t k, std::int64_t bytes) {
  constexpr std::uint32_t kF32 = 0x3c000000;
  constexpr std::uint16_t kF16 = 0x2000;
  constexpr std::uint16_t kBF16 = 0x3c00;
  constexpr std::uint8_t kF8 = 0x04;  // the subnormal 4 / 8 * 2^-6
  Weights out;
  const std::int64_t row_bytes = dtype_info(dtype).block_bytes * k;
  out.matrix_bytes = row_bytes * n;
  const std::int64_t count = std::max<std::int64_t>(1, bytes / out.matrix_bytes);
  const auto total = static_cast<std::size_t>(count * out.matrix_bytes);
  TRINE_TRY_ASSIGN(out.memory, HugeBuffer::allocate(total));
  const auto fill = [&](auto value) {
    for (std::size_t at = 0; at < total; at += sizeof value) {
      std::memcpy(out.memory.data() + at, &value, sizeof value);
    }
  };
  switch (dtype) {
    case DType::kF32:
      fill(kF32);
      break;
    case DType::kF16:
      fill(kF16);
      break;
    case DType::kBF16:
      fill(kBF16);
      break;
    default:
      fill(kF8);
  }
  for (std::int64_t i = 0; i < count; ++i) {
    ops::WeightView view;
    view.dtype = dtype;
    view.rows = n;
    view.cols = k;
    view.data = reinterpret_cast<const std::byte*>(out.memory.data() + i * out.matrix_bytes);
    view.row_bytes = row_bytes;
    out.views.push_back(view);
  }
  return out;
}

std::int32_t group_of(const std::string& text) {
  if (text == "row") {
    return 0;
  }
  for (const std::int32_t group : {32, 64, 128, 256}) {
    if (text == std::to_string(group)) {
      return group;
    }
  }
  return -1;
}

std::optional<PackedScheme> parse_own_scheme(const std::string& name) {
  static const std::map<char, CodeKind> kCodes{{'2', CodeKind::kU2}, {'3', CodeKind::kU3},
                                               {'4', CodeKind::kU4}, {'5', CodeKind::kU5},
                                               {'6', CodeKind::kU6}, {'8', CodeKind::kU8}};
  if (name.size() < 4 || name[0] != 'w' || !kCodes.contains(name[1]) || name[2] != 'g') {
    return std::nullopt;
  }
  const bool zero = name.ends_with('a');
  const std::int32_t group = group_of(name.substr(3, name.size() - 3 - (zero ? 1 : 0)));
  if (group < 0) {
    return std::nullopt;
  }
  const ScaleKind scales = zero         ? ScaleKind::kF16Zero
                           : group == 0 ? ScaleKind::kF32
                                        : ScaleKind::kF16;
  return PackedScheme{kCodes.at(name[1]), scales, group};
}

}  // namespace

Result<NamedScheme> parse_scheme(const std::string& name) {
  if (const auto own = parse_own_scheme(name); own.has_value()) {
    return NamedScheme{.name = name, .scheme = *own};
  }
  std::string upper = name;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  for (const DType plain : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    if (dtype_info(plain).name == upper) {
      return NamedScheme{.name = name, .scheme = {}, .plain = plain};
    }
  }
  std::string known;
  for (int i = 0; i < kNumDTypes; ++i) {
    const auto type = static_cast<DType>(i);
    const auto scheme = packed_scheme_of(type);
    if (!scheme.has_value()) {
      continue;
    }
    if (dtype_info(type).name == upper) {
      return NamedScheme{.name = name, .scheme = *scheme};
    }
    known += fmt::format(", {}", dtype_info(type).name);
  }
  return fail(
      ErrorCode::kInvalidArgument,
      "no scheme '{}'; there are w2, w3, w4, w5, w6 and w8 with g32, g64, g128, g256 or grow, an "
      "'a' behind for zero points (w4g128a), f32, f16, bf16, f8_e4m3{}",
      name, known);
}

Result<KernelReport> bench_kernels(ThreadTeam& team, const KernelBenchOptions& options) {
  KernelReport report;
  Limits limits(team);
  ops::Context ctx(team);
  std::vector<double> all_reads;
  std::vector<double> all_int8;
  std::int64_t smallest = std::numeric_limits<std::int64_t>::max();  // weights of a scheme
  const std::int64_t max_rows = *std::max_element(options.rows.begin(), options.rows.end());
  std::vector<float> x(static_cast<std::size_t>(max_rows * options.k));
  for (std::size_t i = 0; i < x.size(); ++i) {
    x[i] = 1e-3F * static_cast<float>(random_bits(2, i) % 2001) - 1.0F;
  }
  std::vector<float> y(static_cast<std::size_t>(max_rows * options.n));
  for (const NamedScheme& named : options.schemes) {
    TRINE_TRY_ASSIGN(Weights weights,
                     named.packed()
                         ? make_weights(team, named.scheme, options.n, options.k, options.bytes)
                         : make_plain(named.plain, options.n, options.k, options.bytes));
    limits.choose_setting(weights.memory);
    smallest = std::min(smallest, static_cast<std::int64_t>(weights.memory.size()));
    for (const std::int64_t m : options.rows) {
      // Many rows take long: fewer matrices do, as memory is not what holds them up.
      const std::size_t count = std::clamp<std::size_t>(
          weights.views.size() * 32 / static_cast<std::size_t>(std::max<std::int64_t>(m, 1)), 1,
          weights.views.size());
      const auto pass = [&] {
        const Stopwatch watch;
        for (std::size_t i = 0; i < count; ++i) {
          ops::linear(ctx, weights.views[i], nullptr, x.data(), options.k, m, y.data(), options.n);
        }
        return watch.seconds();
      };
      pass();  // grows the buffers
      const double bytes = static_cast<double>(weights.matrix_bytes) * static_cast<double>(count);
      const double ops = 2.0 * static_cast<double>(options.n) * static_cast<double>(options.k) *
                         static_cast<double>(m) * static_cast<double>(count);
      std::vector<double> seconds, read_shares, int8_shares;
      for (int r = 0; r < options.repeats; ++r) {
        if (interrupted()) {
          return fail(ErrorCode::kCancelled, "interrupted");
        }
        const double read = limits.read(weights.memory);
        const double int8 = limits.int8();
        const double time = pass();
        all_reads.push_back(read);
        all_int8.push_back(int8);
        seconds.push_back(time);
        read_shares.push_back(bytes / time / 1e9 / read);
        int8_shares.push_back(ops / time / 1e9 / int8);
      }
      const double time = median(seconds);
      report.rows.push_back({named.name, named.packed() ? named.scheme.group : -1, options.n,
                             options.k, m, time / static_cast<double>(count) * 1e3,
                             bytes / time / 1e9, 100 * median(read_shares), ops / time / 1e9,
                             100 * median(int8_shares)});
    }
  }
  warn_if_cached(smallest);
  report.read_gbps = median(all_reads);
  report.int8_gops = median(all_int8);
  return report;
}

}  // namespace trine::app
