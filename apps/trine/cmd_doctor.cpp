// trine doctor: what this machine and this build offer, for bug reports and for finding out why it
// is slow.
#include <thread>

#include <nlohmann/json.hpp>
#include <sys/utsname.h>

#include "apps/trine/command.h"
#include "apps/trine/help.h"
#include "apps/trine/machine.h"
#include "apps/trine/model_args.h"
#include "platform/cpu.h"
#include "platform/memory.h"
#include "platform/thread_team.h"

namespace trine::app {

namespace {

using Json = nlohmann::ordered_json;

std::vector<std::string> feature_names(const CpuFeatures& features) {
  const std::pair<const char*, bool> rows[] = {
      {"avx2", features.avx2},         {"fma", features.fma},
      {"f16c", features.f16c},         {"avx512f", features.avx512f},
      {"avx512bw", features.avx512bw}, {"avx512vl", features.avx512vl},
      {"avx512dq", features.avx512dq}, {"avx512vnni", features.avx512vnni},
      {"avxvnni", features.avxvnni},   {"amx_int8", features.amx_int8 && features.os_amx}};
  std::vector<std::string> out;
  for (const auto& [name, has] : rows) {
    if (has) {
      out.emplace_back(name);
    }
  }
  return out;
}

std::string build_name() {
#if defined(__clang__)
  std::string out = "clang " __clang_version__;
#else
  std::string out = "g++ " __VERSION__;
#endif
#ifdef TRINE_DCHECK_ENABLED
  out += ", with internal checks (slow)";
#endif
  return out;
}

std::string joined_text(const std::vector<std::string>& list) {
  std::string out;
  for (const std::string& entry : list) {
    out += out.empty() ? "" : " ";
    out += entry;
  }
  return out;
}

Result<int> run_doctor(CommandContext& context) {
  const options::Settings& settings = context.settings();
  TRINE_TRY(select_isa_level());
  TRINE_TRY(apply_isa(settings));
  TRINE_TRY_ASSIGN(const auto team,
                   ThreadTeam::create(static_cast<int>(settings.integer("threads"))));
  TRINE_TRY_ASSIGN(const hub::Store store, open_store(settings));
  const std::vector<std::string> features = feature_names(cpu_features());
  utsname system = {};
  ::uname(&system);
  const std::string os = fmt::format("{} {} {}", system.sysname, system.release, system.machine);
  const std::int64_t memory = physical_memory_bytes();
  const std::string root = store.root().string();
  if (context.json()) {
    context.print_json({{"version", kVersion},
                        {"build", build_name()},
                        {"system", os},
                        {"cpu", cpu_name()},
                        {"features", features},
                        {"isa", isa_level_name(isa_level())},
                        {"hardware_threads", std::thread::hardware_concurrency()},
                        {"threads", team->num_threads()},
                        {"memory_bytes", memory},
                        {"store", root}});
    return 0;
  }
  write_out(fmt::format("version   {}\nbuild     {}\nsystem    {}\ncpu       {}\nfeatures  {}\n",
                        kVersion, build_name(), os, cpu_name(), joined_text(features)));
  write_out(fmt::format("kernels   {}\nthreads   {} of {}\nmemory    {:.1f} GiB\nstore     {}\n",
                        isa_level_name(isa_level()), team->num_threads(),
                        std::thread::hardware_concurrency(),
                        static_cast<double>(memory) / (1024.0 * 1024.0 * 1024.0), root));
  if (isa_level() == IsaLevel::kScalar) {
    context.note(
        "note: scalar kernels are many times slower; this CPU has no AVX2, or --isa chose them");
  }
  return 0;
}

}  // namespace

extern const Command kDoctorCommand;
const Command kDoctorCommand = {
    .name = "doctor",
    .group = "verify",
    .summary = "Describe machine and build",
    .options = with_store_options({"threads", "isa"}),
    .run = run_doctor,
};

}  // namespace trine::app
