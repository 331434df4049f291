// The canaries' task, data and answer, exact in float32.
#include "judge/triton_canary.h"

#include <nlohmann/json.hpp>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "kernel/triton.h"

namespace ak::judge {
namespace {

constexpr int64_t rows = 3, columns = 256;
constexpr int64_t first_with_tensor_maps = 90;      // compute capability
constexpr double shift = 0.75, step = 1, wide = 3;  // what the kernel adds beside the number of the row

kernel::Task canary_task() {
  const Json shape = {"M", "N"};
  return kernel::task_from_json({{"schema", "autokernel.task/1"},
                                 {"id", "canary_00000000"},
                                 {"family", "canary"},
                                 {"dtype", "float32"},
                                 {"scalars", {{"shift", shift}}},
                                 {"options", Json::object()},
                                 {"workload", {{{"dims", {{"M", rows}, {"N", columns}}}, {"strides", Json::object()}, {"calls", 1}}}},
                                 {"tensors",
                                  {{{"name", "x"}, {"role", "data"}, {"dtype", "float32"}, {"shape", shape}},
                                   {{"name", "absent"}, {"role", "data"}, {"dtype", "float32"}, {"shape", shape}, {"absent", true}},
                                   {{"name", "out"}, {"role", "output"}, {"dtype", "float32"}, {"shape", shape}}}}});
}

std::span<const std::byte> bytes_of(const auto& values) { return std::as_bytes(std::span(values)); }

/// Writes inputs.safetensors and expected.safetensors.
void write_fixture(const std::filesystem::path& directory) {
  std::vector<float> x;
  std::vector<double> out;
  for (int64_t i = 0; i < rows * columns; ++i) {
    const int64_t row = i / columns;
    x.push_back(static_cast<float>((i * 37 % 1024) - 500) / 8);
    out.push_back(x.back() + static_cast<double>(row) + step + wide + shift);
  }
  const std::string shape = Json({rows, columns}).dump(), strides = Json({columns, 1}).dump();
  const NamedTensor input{"x", Dtype::float32, {rows * columns}, bytes_of(x)};
  write_safetensors(directory / "inputs.safetensors", std::span(&input, 1),
                    {{"x.shape", shape}, {"x.strides", strides}, {"x.offset", "0"}, {"x.dtype", "float32"}});
  const NamedTensor answers[] = {{"out.reference", Dtype::float64, {rows, columns}, bytes_of(out)},
                                 {"out.eager", Dtype::float64, {rows, columns}, bytes_of(out)}};
  write_safetensors(directory / "expected.safetensors", answers,
                    {{"out.shape", shape}, {"out.strides", strides}, {"out.dtype", "float32"}});
}

Json candidate_of(const kernel::Task& task, const compile::Compiler& compiler, const std::filesystem::path& canary, const Bindings& facts) {
  const auto file = kernel::KernelFile::read(canary);
  const kernel::Binding& binding = task.workload.front();
  const compile::Result compiled = compiler.compile(compile::source_of(file, task, file.defaults(), binding, facts));
  if (!compiled.compiled) throw Error(compiled.log);
  Json candidate =
      kernel::to_json(kernel::with_triton_module(kernel::make_concrete(file, task, binding, file.defaults(), facts), compiled.module));
  candidate["module"] = compiled.module.string();
  return candidate;
}

/// What went wrong; empty where the canary lives.
std::string failure_of(const std::filesystem::path& canary, JudgeProcess& process, const compile::Compiler& compiler,
                       const std::filesystem::path& fixture) try {
  const kernel::Task task = canary_task();
  Json test_case = kernel::to_json(task.workload.front());
  test_case.update({{"stage", 1}, {"generator", "normal"}, {"seed", 1}});
  const auto reply = process.call("check",
                                  {{"candidate", candidate_of(task, compiler, canary, process.facts())},
                                   {"task", kernel::to_json(task)},
                                   {"case", test_case},
                                   {"inputs", (fixture / "inputs.safetensors").string()},
                                   {"expected", (fixture / "expected.safetensors").string()},
                                   {"runs", 1}},
                                  std::chrono::seconds(60));
  if (!reply) return "the judge died: " + process.last_end();
  return reply->at("verdict") == "pass" ? std::string() : reply->dump();
} catch (const Error& error) {
  return error.what();
}

}  // namespace

void prove_triton(JudgeProcess& process, compile::Compiler& compiler, const std::filesystem::path& folder) {
  const TemporaryDirectory fixture("autokernel-canary-");
  write_fixture(fixture.path());
  if (const std::string failure = failure_of(folder / "canary.py", process, compiler, fixture.path()); !failure.empty())
    throw Error(compiler.version() + " does not launch on this device as its modules say: " + failure,
                "use another version of Triton (3.4 to 3.9), or --backend cuda");
  if (process.facts().at("compute_capability") < first_with_tensor_maps) return;
  if (const std::string failure = failure_of(folder / "canary_tensor_map.py", process, compiler, fixture.path()); !failure.empty())
    compiler.refuse(std::string(kernel::triton_descriptor),
                    compiler.version() +
                        " does not pass tensor maps on this device as its modules say; make the descriptor in the kernel "
                        "with tl.make_tensor_descriptor. A known kernel with one: " +
                        failure);
}

}  // namespace ak::judge
