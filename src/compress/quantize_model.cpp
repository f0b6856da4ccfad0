#include "compress/quantize_model.h"

#include <chrono>
#include <filesystem>
#include <memory>
#include <optional>

#include <nlohmann/json.hpp>

#include "base/printable.h"
#include "compress/block_quantizer.h"
#include "compress/calibration_pass.h"
#include "compress/schedule.h"
#include "convert/to_gguf.h"
#include "hub/files.h"
#include "platform/thread_team.h"

namespace trine {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::ordered_json;

// Raised when the same options would give other codes: what an older version left is not resumed.
constexpr int kAlgorithmVersion = 1;

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

Json scheme_json(const QuantScheme& scheme) {
  return scheme.text();
}

Json options_json(const QuantizeOptions& options) {
  Json rules = Json::array();
  for (const ModuleRule& rule : options.rules) {
    rules.push_back({{"pattern", rule.pattern},
                     {"as", rule.keep                ? Json("keep")
                            : rule.plain_activations ? Json("w8a16")
                                                     : scheme_json(rule.scheme)}});
  }
  Json out = {{"method", method_name(options.method)},
              {"format", format_name(options.format)},
              {"scheme", scheme_json(options.scheme)},
              {"overrides", std::move(rules)},
              {"head_bits", options.head_bits},
              {"embedding_bits", options.embedding_bits},
              {"clip", options.clip}};
  if (options.method == QuantMethod::kGptq || options.method == QuantMethod::kAwqGptq) {
    out["damping"] = options.damping;
    out["act_order"] = options.act_order;
    out["true_sequential"] = options.true_sequential;
  }
  if (options.method == QuantMethod::kSmoothQuant) {
    out["alphas"] = options.alphas;
    out["smooth_limit"] = options.smooth_limit;
  }
  return out;
}

Json provenance_json(const QuantizeRequest& request, const CalibrationSet& calibration) {
  Json out = {{"quantizer", "trine"}, {"version", kAlgorithmVersion}};
  out.update(options_json(request.options));
  if (needs_calibration(request.options.method)) {
    Json files = Json::array();
    for (const CalibrationFile& file : calibration.files) {
      files.push_back({{"file", fs::path(file.path).filename().string()},
                       {"sha256", file.sha256},
                       {"texts", file.texts},
                       {"tokens", file.tokens}});
    }
    out["calibration"] = {{"hash", calibration.hash},
                          {"tokens", calibration.tokens},
                          {"window", request.calibration.window},
                          {"seed", request.calibration.seed},
                          {"files", std::move(files)}};
  }
  return out;
}

// Tells this source from another one: names, types, shapes and the first bytes of every tensor.
std::string source_hash(const DecoderParts& parts) {
  constexpr std::size_t kBytes = std::size_t{1} << 14;
  hub::Sha256 hash;
  for (const TensorInfo& tensor : parts.checkpoint->weights().tensors()) {
    hash.update(fmt::format("{} {} {}\n", tensor.name, dtype_info(tensor.dtype).name,
                            shape_text(tensor.shape)));
    const auto first = tensor.data.first(std::min(kBytes, tensor.data.size()));
    hash.update({reinterpret_cast<const char*>(first.data()), first.size()});
  }
  return hash.finish();
}

Status check_source(const QuantizeRequest& request, const DecoderParts& parts) {
  const QuantizeOptions& options = request.options;
  if (parts.config.tied_embeddings && options.head_bits != 0 && options.embedding_bits != 0 &&
      options.head_bits != options.embedding_bits) {
    return fail(ErrorCode::kInvalidArgument,
                "--head-bits {} and --embedding-bits {}: this model has one table for both",
                options.head_bits, options.embedding_bits);
  }
  return {};
}

Status check_output(const QuantizeRequest& request) {
  std::error_code error;
  const fs::path out(request.out);
  if (fs::exists(out, error)) {
    if (!request.replace) {
      return fail(ErrorCode::kInvalidArgument, "{} exists already; give another --out, or --force",
                  request.out);
    }
    if (fs::equivalent(out, request.source, error)) {
      return fail(ErrorCode::kInvalidArgument, "--out is the source {} itself", request.source);
    }
    const bool file = request.options.format == OutputFormat::kGguf;
    if (fs::is_directory(out, error) == file) {
      return fail(ErrorCode::kInvalidArgument, "{} is a {}; --format {} makes a {}", request.out,
                  file ? "directory" : "file", format_name(request.options.format),
                  file ? "file" : "directory");
    }
  }
  const fs::path parent = out.has_parent_path() ? out.parent_path() : fs::path(".");
  if (!fs::is_directory(parent, error)) {
    return fail(ErrorCode::kInvalidArgument, "--out {}: there is no directory {}", request.out,
                parent.string());
  }
  return {};
}

class Run {
 public:
  Run(const QuantizeRequest& request, ThreadTeam& team)
      : request_(request), team_(team), ctx_(team) {}

  Result<QuantizeReport> run() {
    TRINE_TRY(check_options(request_.options));
    TRINE_TRY(check_output(request_));
    TRINE_TRY(choose_source());
    TRINE_TRY_ASSIGN(DecoderParts parts, open_decoder(source_, 0));
    parts_ = std::move(parts);
    TRINE_TRY(check_source(request_, *parts_));
    TRINE_TRY_ASSIGN(schedule_, schedule_modules(*parts_, request_.options));
    report_.source = request_.source;
    report_.out = request_.out;
    report_.options = request_.options;
    report_.predicted = predict_sizes(*parts_, request_.options, schedule_);
    report_.num_blocks = parts_->config.num_layers;
    for (const TensorInfo& tensor : parts_->checkpoint->weights().tensors()) {
      report_.source_bytes += tensor.data.size();
    }
    TRINE_TRY(calibrate());
    if (request_.dry_run) {
      remove_conversion();
    } else {
      TRINE_TRY(quantize_blocks());
      TRINE_TRY(write());
    }
    report_.calibration.sequences.clear();
    return std::move(report_);
  }

 private:
  // A directory becomes a GGUF file by way of one in full precision in the work folder, so that
  // names and the order of rows are those of the output.
  Status choose_source() {
    source_ = request_.source;
    TRINE_TRY_ASSIGN(const CheckpointKind kind, detect_checkpoint(source_));
    const bool to_gguf = request_.options.format == OutputFormat::kGguf;
    if (kind == CheckpointKind::kGguf && !to_gguf) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} is a GGUF file, from which --format {} cannot be made: give the model's "
                  "Hugging Face directory",
                  source_, format_name(request_.options.format));
    }
    if (kind == CheckpointKind::kGguf || !to_gguf) {
      return {};
    }
    std::error_code error;
    fs::create_directories(work_folder(), error);
    ConvertRequest convert;
    convert.source = source_;
    convert.out = converted_path();
    convert.replace = true;
    convert.progress = [this](std::uint64_t done, std::uint64_t total) -> Status {
      if (cancelled()) {
        return fail(ErrorCode::kCancelled, "interrupted, nothing was written");
      }
      tell(QuantizeStage::kConversion, static_cast<std::int64_t>(done),
           static_cast<std::int64_t>(total), false);
      return {};
    };
    TRINE_TRY_ASSIGN(const ConvertReport converted, convert_to_gguf(convert));
    for (const std::string& note : converted.notes) {
      request_.warn(note);
    }
    source_ = converted_path();
    return {};
  }

  std::string converted_path() const { return work_folder() + "/source.gguf"; }

  void remove_conversion() const {
    std::error_code error;
    if (source_ != request_.source) {
      fs::remove(converted_path(), error);
      fs::remove(work_folder(), error);  // unless it holds more
    }
  }

  Status calibrate() {
    const Stopwatch watch;
    if (!needs_calibration(request_.options.method)) {
      return {};
    }
    if (request_.calibration.files.empty()) {
      return fail(ErrorCode::kInvalidArgument,
                  "--method {} learns from texts like those the model will see: give --calib FILE "
                  "(JSONL with \"text\" or \"messages\", or plain text); --method rtn needs none",
                  method_name(request_.options.method));
    }
    TRINE_TRY_ASSIGN(const ModelText text, ModelText::load(source_));
    CalibrationSpec spec = request_.calibration;
    const WidestInput widest = widest_input(schedule_);
    if (spec.tokens == 0) {
      spec.tokens = std::max(4 * widest.cols, kLeastCalibration);
    }
    spec.window = std::min(spec.window, parts_->config.context_length);
    TRINE_TRY_ASSIGN(report_.calibration, read_calibration(spec, text, parts_->config));
    TRINE_TRY(check_tokens(widest));
    if (!request_.dry_run) {
      TRINE_TRY_ASSIGN(pass_,
                       CalibrationPass::create(ctx_, *parts_, report_.calibration.sequences));
    }
    report_.calibration_seconds = watch.seconds();
    return {};
  }

  Status check_tokens(const WidestInput& widest) {
    const std::int64_t tokens = report_.calibration.tokens;
    if (uses_second_moments(request_.options.method) && tokens < widest.cols) {
      return fail(
          ErrorCode::kInvalidArgument,
          "--calib: {} tokens, but {} has {} inputs: fewer tokens than inputs do not "
          "determine its second moments. Give more text (best {} tokens or more), or --method "
          "rtn",
          tokens, printable(widest.module), widest.cols, 4 * widest.cols);
    }
    if (uses_second_moments(request_.options.method) && tokens < 4 * widest.cols) {
      request_.warn(
          fmt::format("{} calibration tokens are few for {}, which has {} inputs: best are "
                      "{} or more",
                      tokens, printable(widest.module), widest.cols, 4 * widest.cols));
    }
    return {};
  }

  bool cancelled() const { return request_.cancel != nullptr && request_.cancel->load(); }

  void tell(QuantizeStage stage, std::int64_t done, std::int64_t total, bool resumed) const {
    if (request_.progress) {
      request_.progress({stage, done, total, resumed});
    }
  }

  std::string work_folder() const { return request_.out + ".work"; }

  Status open_store() {
    provenance_ = provenance_json(request_, report_.calibration);
    Json identity = provenance_;
    identity["source"] = source_hash(*parts_);
    TRINE_TRY_ASSIGN(ResultStore store, ResultStore::open(work_folder(), identity.dump()));
    store_ = std::move(store);
    if (request_.restart) {
      store_->clear();
    }
    return {};
  }

  Status quantize_blocks() {
    const Stopwatch watch;
    TRINE_TRY(open_store());
    BlockQuantizer quantizer(ctx_, *parts_, request_.options, pass_.get(), request_.cancel);
    const std::int32_t num_layers = parts_->config.num_layers;
    for (std::int32_t i = 0; i < num_layers; ++i) {
      if (cancelled()) {
        return fail(ErrorCode::kCancelled, "interrupted; the same command goes on after block {}",
                    i);
      }
      TRINE_TRY_ASSIGN(const bool resumed, quantize_block(quantizer, i));
      parts_->checkpoint->weights().release_pages();
      tell(QuantizeStage::kBlocks, i + 1, num_layers, resumed);
    }
    pass_.reset();
    report_.block_seconds = watch.seconds();
    return {};
  }

  // Whether its result was there already.
  Result<bool> quantize_block(BlockQuantizer& quantizer, std::int32_t layer_idx) {
    auto found = store_->find(layer_idx);
    if (!found.has_value() && found.error().code == ErrorCode::kInvalidArgument) {
      return fail(ErrorCode::kInvalidArgument,
                  "{} holds an interrupted run with other options, calibration texts or another "
                  "source: repeat that command to finish it, or give --restart to forget it",
                  work_folder());
    }
    if (!found.has_value()) {
      return fail(found.error().code, "{}; --restart forgets what the interrupted run left",
                  found.error().message);
    }
    std::shared_ptr<const BlockResult> result = *std::move(found);
    const bool resumed = result != nullptr;
    if (resumed && pass_ == nullptr) {
      add_reports(*result);
      ++report_.resumed_blocks;
      return true;
    }
    TRINE_TRY_ASSIGN(const std::unique_ptr<BlockWeights> block,
                     BlockWeights::load(team_, *parts_, layer_idx));
    if (resumed) {
      TRINE_TRY(apply_result(team_, *result, *block));
      TRINE_TRY(quantizer.pass_through(*block, layer_idx));
      ++report_.resumed_blocks;
    } else {
      for (const auto& linear : block->linears) {
        const ScheduledModule& module = schedule_.find(linear->module)->second;
        linear->scheme = module.scheme;
        linear->plain_activations = module.plain_activations;
      }
      TRINE_TRY(quantizer.quantize(*block, layer_idx));
      result = std::make_shared<const BlockResult>(take_result(*block));
      TRINE_TRY(store_->add(layer_idx, result));
    }
    add_reports(*result);
    return resumed;
  }

  void add_reports(const BlockResult& result) {
    for (const LinearResult& linear : result.linears) {
      report_.modules.push_back(linear.report);
    }
  }

  // Into the work folder first, then under its name.
  Status write() {
    const Stopwatch watch;
    std::int64_t done = 0;
    const auto total = static_cast<std::int64_t>(parts_->checkpoint->weights().tensors().size());
    const OutputContext context{team_,
                                *parts_,
                                request_.options,
                                *store_,
                                request_.source,
                                provenance_,
                                [&](std::string_view) -> Status {
                                  if (cancelled()) {
                                    return fail(ErrorCode::kCancelled,
                                                "interrupted; the same command writes the output");
                                  }
                                  tell(QuantizeStage::kOutput, ++done, total, false);
                                  return {};
                                }};
    const fs::path made = store_->output_path();
    std::error_code error;
    fs::remove_all(made, error);
    if (request_.options.format == OutputFormat::kGguf) {
      TRINE_TRY_ASSIGN(report_.written, write_gguf_model(context, made.string()));
    } else {
      TRINE_TRY_ASSIGN(report_.written, write_checkpoint(context, made.string()));
    }
    if (request_.replace && fs::is_directory(request_.out, error)) {
      fs::rename(request_.out, store_->replaced_path(), error);
    }
    fs::rename(made, request_.out, error);
    if (error) {
      return fail(ErrorCode::kExhausted, "cannot rename {} to {}: {}", made.string(), request_.out,
                  error.message());
    }
    remove_conversion();
    store_->remove();
    report_.output_seconds = watch.seconds();
    return {};
  }

  const QuantizeRequest& request_;
  ThreadTeam& team_;
  ops::Context ctx_;
  std::optional<DecoderParts> parts_;
  std::string source_;  // that is quantized: the request's, or made of it
  QuantizeSchedule schedule_;
  std::unique_ptr<CalibrationPass> pass_;
  std::optional<ResultStore> store_;
  Json provenance_;
  QuantizeReport report_;
};

}  // namespace

Result<QuantizeReport> quantize_model(const QuantizeRequest& request) {
  TRINE_TRY_ASSIGN(const std::unique_ptr<ThreadTeam> team, ThreadTeam::create(request.threads));
  return Run(request, *team).run();
}

}  // namespace trine
