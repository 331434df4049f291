// A small task (out = x * weight, row by row), its fixtures without Python, and a judge to plant candidates in.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "compile/cpp_compiler.h"
#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"
#include "judge/server.h"
#include "kernel/kernel_file.h"
#include "kernel/launch_plan.h"
#include "kernel/task.h"

namespace ak::judge::test {

inline std::filesystem::path judge_executable() { return std::filesystem::path(AK_BINARY_DIR) / "bin" / "autokernel-judge"; }

inline kernel::Task scale_task() {
  return kernel::task_from_json(Json::parse(R"json({
    "schema": "autokernel.task/1", "id": "scale_00000000", "family": "scale", "spelling": "plain", "dtype": "float32",
    "tensors": [
      {"name": "x", "role": "data", "dtype": "float32", "shape": ["M", "N"]},
      {"name": "weight", "role": "weight", "dtype": "float32", "shape": ["N"]},
      {"name": "out", "role": "output", "dtype": "float32", "shape": ["M", "N"]}],
    "scalars": {}, "options": {},
    "workload": [{"dims": {"M": 64, "N": 768}, "strides": {}, "calls": 1}],
    "sweep": [{"dims": {"M": 1, "N": 33}}], "edges": [{"dims": {"M": 0, "N": 8}}, {"dims": {"M": 3, "N": 5}, "layout": "misaligned"}],
    "stability": ["large"], "tolerance": {"k": 16}, "flops": "M*N", "bytes": "(2*M*N + N) * sizeof(T)",
    "reference": {"kind": "family", "family": "scale", "function": "reference"}})json"));
}

struct FixturePaths {
  std::string inputs, expected;
};

/// The fixture of a case of scale_task(), from its seed.
inline FixturePaths write_scale_fixture(const Json& test_case, const std::filesystem::path& directory) {
  const int64_t rows = test_case.at("dims").at("M"), columns = test_case.at("dims").at("N");
  const int64_t offset = test_case.value("layout", "contiguous") == "misaligned" ? 4 : 0;
  std::mt19937_64 random(test_case.value("seed", uint64_t{1}));
  std::normal_distribution<float> normal;
  const std::string generator = test_case.value("generator", "normal");
  const float scale = generator == "large" ? 1e18f : generator == "zeros" ? 0.0f : 1.0f;
  std::vector<float> x(static_cast<size_t>(offset + rows * columns)), weight(static_cast<size_t>(offset + columns));
  for (float& value : x) value = scale * normal(random);
  for (float& value : weight) value = normal(random);
  std::vector<double> reference(static_cast<size_t>(rows * columns)), eager(reference.size());
  for (int64_t i = 0; i < rows * columns; ++i) {
    const float a = x[static_cast<size_t>(offset + i)], b = weight[static_cast<size_t>(offset + i % columns)];
    reference[static_cast<size_t>(i)] = static_cast<double>(a) * b;
    eager[static_cast<size_t>(i)] = a * b;
  }
  std::filesystem::create_directories(directory);
  const FixturePaths paths{directory / "inputs.safetensors", directory / "expected.safetensors"};
  const std::string shape = Json({rows, columns}).dump(), strides = Json({columns, 1}).dump(), row_shape = Json::array({columns}).dump();
  const NamedTensor inputs[] = {{"x", Dtype::float32, {static_cast<int64_t>(x.size())}, std::as_bytes(std::span(x))},
                                {"weight", Dtype::float32, {static_cast<int64_t>(weight.size())}, std::as_bytes(std::span(weight))}};
  write_safetensors(paths.inputs, inputs,
                    {{"x.shape", shape},
                     {"x.strides", strides},
                     {"x.offset", std::to_string(offset)},
                     {"weight.shape", row_shape},
                     {"weight.strides", "[1]"},
                     {"weight.offset", std::to_string(offset)}});
  const NamedTensor expected[] = {{"out.reference", Dtype::float64, {rows, columns}, std::as_bytes(std::span(reference))},
                                  {"out.eager", Dtype::float64, {rows, columns}, std::as_bytes(std::span(eager))}};
  write_safetensors(paths.expected, expected, {{"out.shape", shape}, {"out.strides", strides}, {"out.dtype", "float32"}});
  return paths;
}

/// A kernel file for scale_task() with `body` as its kernel and `globals` before it; `block` is the row.
inline std::string scale_source(const std::string& body, const std::string& globals = {}, const std::string& more = {}) {
  return "/*autokernel\nfamily = \"scale\"\nbackend = \"cpu\"\n[tune]\nUNROLL = { values = [1, 2], default = 1, tier = 1 }\n" + more +
         "[[launch]]\nkernel = \"scale\"\ngrid = [\"M\"]\nargs = [\"x\", \"weight\", \"out\", \"M\", \"N\"]\n*/\n#include "
         "<autokernel/cpu.h>\n" +
         globals +
         "\nvoid scale(int64_t block, int64_t worker, void* scratch, const float* x, const float* weight, float* out, int64_t M, int64_t "
         "N) {\n"
         "  (void)worker; (void)scratch; (void)M; (void)weight;\n  x += block * N; out += block * N;\n" +
         body + "\n}\nAK_KERNEL(scale)\n";
}

inline const std::string honest_body = "for (int64_t i = 0; i < N; ++i) out[i] = x[i] * weight[i];";

constexpr double any_gain = -1e9, no_gain = 1e9;  // with these whatever passes is faster, or slower

/// A judge's server in this process, with hosts as usual.
class Rig {
 public:
  explicit Rig(double run_seconds = 60)
      : directory_("autokernel-test-"),
        server_(judge_executable()),
        compiler_(compile::CppCompiler::find(AK_SOURCE_DIR "/kernels/include", directory_.path() / "cache")) {
    opened_ = server_.answer("open", {{"device", "cpu"},
                                      {"threads", 2},
                                      {"limits", {{"load_seconds", 2.0}, {"run_seconds", run_seconds}, {"memory_bytes", 256 << 20}}}});
  }

  const Json& opened() const { return opened_; }
  Server& server() { return server_; }
  const std::filesystem::path& directory() const { return directory_.path(); }

  Json candidate(const std::string& source, const Json& test_case) {
    const kernel::Task task = scale_task();
    const kernel::KernelFile file = kernel::KernelFile::parse(source, "kernel.cpp");
    const compile::Result compiled = compiler_.compile({source, kernel::macros(file, task, file.defaults())});
    EXPECT_TRUE(compiled.compiled) << compiled.log;
    Json json = kernel::to_json(kernel::make_concrete(file, task, kernel::binding_from_json(test_case), file.defaults(), {{"workers", 2}}));
    json["module"] = compiled.module.string();
    return json;
  }

  static Json workload_case(uint64_t seed = 7) {
    return {
        {"stage", 1},  {"dims", {{"M", 64}, {"N", 768}}}, {"strides", Json::object()}, {"layout", "contiguous"}, {"generator", "normal"},
        {"seed", seed}};
  }

  Json arguments(const Json& test_case) {
    const FixturePaths paths = write_scale_fixture(test_case, directory_.path() / std::to_string(++fixtures_));
    return {{"task", kernel::to_json(scale_task())}, {"case", test_case}, {"inputs", paths.inputs}, {"expected", paths.expected}};
  }

  Json check(const std::string& source, int runs = 1, const Json& test_case = workload_case()) {
    Json request = arguments(test_case);
    request["candidate"] = candidate(source, test_case);
    request["runs"] = runs;
    return server_.answer("check", request);
  }
  Json check_body(const std::string& body, const std::string& globals = {}, int runs = 1) {
    return check(scale_source(body, globals), runs);
  }

  /// `minimum_gain` decides, so that no test depends on the machine's speed.
  Json time(const std::string& source, const std::string& incumbent, double minimum_gain = any_gain) {
    Json request = arguments(workload_case(99));
    request["candidate"] = candidate(source, workload_case());
    request["incumbent"] = incumbent.empty() ? Json() : candidate(incumbent, workload_case());
    request["minimum_gain"] = minimum_gain;
    request["maximum_seconds"] = 0.5;
    return server_.answer("time", request);
  }

 private:
  TemporaryDirectory directory_;
  Server server_;
  compile::CppCompiler compiler_;
  Json opened_;
  int fixtures_ = 0;
};

}  // namespace ak::judge::test
