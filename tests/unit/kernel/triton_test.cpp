// What Triton is told of a plan, and a plan as Triton's module wants it launched.
#include "kernel/triton.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/file.h"
#include "core/safetensors.h"

namespace ak::kernel {
namespace {

using testing::HasSubstr;

const std::string source = R"file("""autokernel
family  = "rmsnorm"
backend = "triton"

[tune]
TILE      = { values = [256, 512], default = 256, tier = 1 }
NUM_WARPS = { values = [2, 4],     default = 4,   tier = 1 }

[scratch.partial]
dtype = "float32"
shape = ["M"]

[[launch]]
kernel     = "rows"
constexprs = { BLOCK = "pow2ceil(N)", ROWS = "TILE / pow2ceil(N)" }
grid       = ["cdiv(M, ROWS)"]
args       = ["x", "weight", "out", "partial", "M", "N", "x.stride(1)", "M * 1073741824", "eps"]
"""
import triton
)file";

Task task() {
  return task_from_json({{"schema", "autokernel.task/1"},
                         {"id", "rmsnorm_00000000"},
                         {"family", "rmsnorm"},
                         {"dtype", "bfloat16"},
                         {"scalars", {{"eps", 1e-6}}},
                         {"options", {{"WEIGHT_OFFSET", 1}}},
                         {"workload", {{{"dims", {{"M", 10}, {"N", 96}}}, {"strides", Json::object()}, {"calls", 3}}}},
                         {"tensors",
                          {{{"name", "x"}, {"role", "data"}, {"dtype", "bfloat16"}, {"shape", {"M", "N"}}},
                           {{"name", "weight"}, {"role", "weight"}, {"dtype", "bfloat16"}, {"shape", {"N"}}, {"absent", true}},
                           {{"name", "out"}, {"role", "output"}, {"dtype", "bfloat16"}, {"shape", {"M", "N"}}}}}});
}

const KernelFile file = KernelFile::parse(source, "kernel.py");

ConcretePlan plan(const std::string& layout = "contiguous") {
  Binding binding = task().workload.front();
  binding.layout = layout;
  return make_concrete(file, task(), binding, {{"TILE", 512}, {"NUM_WARPS", 2}}, {{"sm_count", 132}});
}

Json specified(const ConcretePlan& of) { return triton_specification(file, task(), {{"TILE", 512}, {"NUM_WARPS", 2}}, of)["launches"][0]; }

class ModuleFile {
 public:
  explicit ModuleFile(const Json& entries) : directory_("autokernel-test-") {
    const Json launches = entries.is_array() ? entries : Json::array({entries});
    write_safetensors(path(), {}, {{"triton", "3.9.0"}, {"launches", launches.dump()}});
  }
  std::filesystem::path path() const { return directory_.path() / "kernel.triton"; }

 private:
  TemporaryDirectory directory_;
};

Json entry(std::vector<int64_t> parameters) {
  return {{"kernel", "rows_0"},
          {"image", 0},
          {"threads", 64},
          {"cluster", 2},
          {"shared", 4096},
          {"cooperative", false},
          {"overlap", false},
          {"parameters", std::move(parameters)},
          {"descriptors", Json::array()},
          {"scratch", {{{"bytes", 128}, {"alignment", 128}}, {{"bytes", 0}, {"alignment", 1}}}}};
}
const std::vector<int64_t> arguments = {8, 8, 8, 4, 4, 8, 4};  // x out partial M N M*2^30 eps

std::vector<int64_t> with_pointers(size_t count) {
  std::vector<int64_t> all = arguments;
  all.insert(all.end(), count, 8);
  return all;
}

TEST(TritonSpecification, arguments_are_specialised_as_tritons_own_launcher_does_it) {
  const Json told = specified(plan())["arguments"];
  const Json pointer = {{"type", "*bf16"}, {"divisible", true}};
  EXPECT_EQ(told[0], pointer);
  EXPECT_EQ(told[1], Json({{"type", "constexpr"}, {"value", nullptr}}));
  EXPECT_EQ(told[3], Json({{"type", "*fp32"}, {"divisible", true}}));
  EXPECT_EQ(told[4], Json({{"type", "i32"}, {"divisible", false}}));
  EXPECT_EQ(told[5], Json({{"type", "i32"}, {"divisible", true}}));
  EXPECT_EQ(told[6], Json({{"type", "constexpr"}, {"value", 1}}));
  EXPECT_EQ(told[7], Json({{"type", "i64"}, {"divisible", true}}));
  EXPECT_EQ(told[8], Json({{"type", "fp32"}, {"divisible", false}}));
}

TEST(TritonSpecification, nothing_is_said_of_tensors_that_may_lie_anywhere) {
  const Json told = specified(plan("misaligned"))["arguments"];
  EXPECT_EQ(told[0]["divisible"], false);
  EXPECT_EQ(told[3]["divisible"], true);  // scratch is ours to place
}

TEST(TritonSpecification, constexprs_are_the_tunables_the_options_and_the_launchs_own) {
  EXPECT_EQ(specified(plan())["constexprs"], Json({{"TILE", 512}, {"NUM_WARPS", 2}, {"WEIGHT_OFFSET", 1}, {"BLOCK", 128}, {"ROWS", 4}}));
}

TEST(TritonPlan, grids_see_the_launchs_constexprs) { EXPECT_EQ(plan().launches[0].grid[0], 3); }

TEST(TritonPlan, a_module_says_how_it_is_launched) {
  const ModuleFile module(entry(with_pointers(2)));
  const ConcretePlan completed = with_triton_module(plan(), module.path());
  const ConcreteLaunch& launch = completed.launches[0];
  EXPECT_EQ(launch.kernel, "rows_0");
  EXPECT_EQ(launch.block[0], 64);
  EXPECT_EQ(launch.cluster[0], 2);
  EXPECT_EQ(launch.grid[0], 6);
  EXPECT_EQ(launch.shared_bytes, 4096);
  using Kind = Argument::Kind;
  std::vector<Kind> kinds;
  for (const Argument& argument : launch.arguments) kinds.push_back(argument.kind);
  EXPECT_THAT(kinds, testing::ElementsAre(Kind::tensor, Kind::tensor, Kind::scratch, Kind::integer32, Kind::integer32, Kind::integer,
                                          Kind::real, Kind::scratch, Kind::null));
  ASSERT_EQ(completed.scratch.size(), 2u);
  EXPECT_EQ(completed.scratch[1].bytes, 6 * 128);
  EXPECT_EQ(completed.scratch[1].alignment, 128);
  EXPECT_EQ(completed.scratch[1].name, launch.arguments[7].name);
}

TEST(TritonPlan, as_many_pointers_follow_as_the_version_has) {
  EXPECT_EQ(with_triton_module(plan(), ModuleFile(entry(with_pointers(0))).path()).launches[0].arguments.size(), 7u);
  EXPECT_EQ(with_triton_module(plan(), ModuleFile(entry(with_pointers(1))).path()).launches[0].arguments.size(), 8u);
}

TEST(TritonPlan, parameters_of_an_unknown_kind_are_refused) {
  for (const size_t count : {3, 9}) {
    const ModuleFile module(entry(with_pointers(count)));
    try {
      with_triton_module(plan(), module.path());
      FAIL() << count << " pointers more were accepted";
    } catch (const Error& error) {
      EXPECT_THAT(error.what(), HasSubstr("a way to pass them that this version does not know"));
    }
  }
}

/// The same kernel, whose x comes by a tensor map between two integers.
const KernelFile mapped_file = [] {
  std::string text = source;
  text.replace(text.find("\"x\", \"weight\""), 13, "\"M * 1073741824\", \"rows\", \"weight\"");
  text.insert(text.find("[[launch]]"), "[tensormap.rows]\ntensor = \"x\"\nbox = [\"4\", \"TILE\"]\n");
  return KernelFile::parse(text, "kernel.py");
}();

ConcretePlan mapped_plan() {
  return make_concrete(mapped_file, task(), task().workload.front(), {{"TILE", 512}, {"NUM_WARPS", 2}}, {{"sm_count", 132}});
}

Json mapped_entry(std::vector<int64_t> parameters) {
  Json json = entry(std::move(parameters));
  const Json passes = {{{"map", true}}, {{"shape", 0}}, {{"shape", 1}}, {{"stride", 0}}, {{"stride", 1}}};
  json["descriptors"] = Json::array({{{"box", {4, 64}}, {"swizzle", 128}, {"passes", passes}}});
  return json;
}
const std::vector<int64_t> mapped_parameters = {8, 128, 4, 4, 8, 8, 8, 8, 4, 4, 8, 4};

TEST(TritonSpecification, a_tensor_map_is_a_descriptor_of_its_box) {
  const Json told = triton_specification(mapped_file, task(), {}, mapped_plan())["launches"][0]["arguments"];
  EXPECT_EQ(told[1], Json({{"type", "tensordesc<bf16[4, 512]>"}}));
}

TEST(TritonPlan, a_descriptor_is_the_map_that_the_compiler_wants_and_the_extents_as_wide_as_it_wants_them) {
  const ModuleFile module(mapped_entry(mapped_parameters));
  const ConcretePlan completed = with_triton_module(mapped_plan(), module.path());
  const std::vector<Argument>& given = completed.launches[0].arguments;
  ASSERT_EQ(completed.tensor_maps.size(), 1u);
  const ConcreteTensorMap& map = completed.tensor_maps[0];
  EXPECT_THAT(map.box, testing::ElementsAre(4, 64));
  EXPECT_EQ(map.swizzle_bytes, 128);
  EXPECT_EQ(map.tensor.name, "x");
  EXPECT_EQ(given[1].name, map.name);
  using Kind = Argument::Kind;
  const std::vector<std::pair<Kind, int64_t>> passed = {
      {Kind::tensor_map, 0}, {Kind::integer32, 10}, {Kind::integer32, 96}, {Kind::integer, 96}, {Kind::integer, 1}};
  for (size_t i = 0; i < passed.size(); ++i) {
    EXPECT_EQ(given[i + 1].kind, passed[i].first) << i;
    EXPECT_EQ(given[i + 1].integer, passed[i].second) << i;
  }
}

TEST(TritonPlan, two_launches_may_want_one_map_encoded_differently) {
  Json other = mapped_entry(mapped_parameters);
  other["descriptors"][0]["box"] = {2, 32};
  other["descriptors"][0]["swizzle"] = 64;
  const ModuleFile module(Json::array({mapped_entry(mapped_parameters), other}));
  ConcretePlan twice = mapped_plan();
  twice.launches.push_back(twice.launches[0]);
  const ConcretePlan completed = with_triton_module(twice, module.path());
  ASSERT_EQ(completed.tensor_maps.size(), 2u);
  EXPECT_EQ(completed.find_tensor_map(completed.launches[0].arguments[1].name)->swizzle_bytes, 128);
  EXPECT_EQ(completed.find_tensor_map(completed.launches[1].arguments[1].name)->swizzle_bytes, 64);
}

TEST(TritonPlan, a_map_in_another_place_is_refused) {
  const ModuleFile module(mapped_entry({128, 4, 4, 8, 8, 8, 8, 8, 4, 4, 8, 4}));
  EXPECT_THROW(with_triton_module(mapped_plan(), module.path()), Error);
}

TEST(TritonPlan, a_module_of_another_plan_is_refused) {
  const ModuleFile module(entry(with_pointers(2)));
  ConcretePlan twice = plan();
  twice.launches.push_back(twice.launches[0]);
  EXPECT_THROW(with_triton_module(twice, module.path()), Error);
}

std::string error_of(const std::string& text) {
  try {
    KernelFile::parse(text, "kernel.py");
    return "no error";
  } catch (const Error& error) {
    return error.what();
  }
}

std::string with_line(const std::string& line) {
  std::string text = source;
  return text.insert(text.find("args "), line + "\n");
}

TEST(TritonFile, what_follows_from_the_source_is_not_declared) {
  EXPECT_THAT(error_of(with_line("block = [\"128\"]")), HasSubstr("kernel.py:13: block, shared and cluster"));
  EXPECT_THAT(error_of(with_line("shared = \"128\"")), HasSubstr("kernel.py:13"));
}

TEST(TritonFile, what_the_hardware_swizzles_is_the_compilers_choice_and_a_box_is_of_powers_of_2) {
  const std::string map = "[tensormap.rows]\ntensor = \"x\"\nbox = [\"1\", \"N\"]\n";
  std::string text = source;
  text.insert(text.find("[[launch]]"), map + "swizzle = \"128\"\n");
  EXPECT_THAT(error_of(text), HasSubstr("kernel.py:16: tensormap.rows.swizzle: is chosen by Triton's compiler"));
  text = source;
  text.insert(text.find("[[launch]]"), map);
  text.replace(text.find("\"x\", \"weight\""), 3, "\"rows\"");
  try {
    make_concrete(KernelFile::parse(text, "kernel.py"), task(), task().workload.front(), {{"TILE", 256}, {"NUM_WARPS", 2}}, {});
    FAIL() << "a box of 96 was accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("no power of 2"));
  }
}

TEST(TritonFile, constexprs_are_tritons) {
  std::string text = source;
  text.replace(text.find("triton"), 6, "cuda");
  EXPECT_THAT(error_of(text), HasSubstr("constexprs are for Triton"));
}

}  // namespace
}  // namespace ak::kernel
