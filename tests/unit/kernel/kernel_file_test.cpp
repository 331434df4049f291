// Kernel files: what is read, what is refused with its line, edits that keep all else, and plans made concrete.
#include "kernel/kernel_file.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "kernel/launch_plan.h"

namespace ak::kernel {
namespace {

const std::string source = R"file(// a comment before
/*autokernel
family  = "rmsnorm"
backend = "cpu"

[tune]   # tiers
ROWS   = { values = [1, 2, 4], default = 2,   tier = 1 }  # rows a block
UNROLL = { tier = 3, default = 1, values = [1, 2] }
require = ["ROWS <= M || M == 0"]

[scratch.partial]
dtype = "float32"
shape = ["workers", "N"]
zeroed = true

[[launch]]
kernel = "rows"
grid = ["cdiv(M, ROWS)"]
args = ["x", "weight", "out", "partial", "M", "N", "x.stride(0)", "eps", 7]

[[variant]]
when = "N == 1"
[[variant.launch]]
kernel = "single"
grid = [1]
args = ["x", "out", "M"]
*/
void rows();
)file";

Task rmsnorm_task(bool with_weight = true) {
  Json json = {{"schema", "autokernel.task/1"},
               {"id", "rmsnorm_00000000"},
               {"family", "rmsnorm"},
               {"dtype", "float32"},
               {"scalars", {{"eps", 1e-6}}},
               {"options", {{"WEIGHT_OFFSET", 0}}},
               {"workload", {{{"dims", {{"M", 10}, {"N", 96}}}, {"strides", {{"x", {128, 1}}}}, {"calls", 3}}}},
               {"tensors",
                {{{"name", "x"}, {"role", "data"}, {"dtype", "float32"}, {"shape", {"M", "N"}}},
                 {{"name", "weight"}, {"role", "weight"}, {"dtype", "float32"}, {"shape", {"N"}}, {"absent", !with_weight}},
                 {{"name", "out"}, {"role", "output"}, {"dtype", "float32"}, {"shape", {"M", "N"}}}}}};
  return task_from_json(json);
}

std::string error_of(std::string text) {
  try {
    KernelFile::parse(std::move(text), "kernel.cpp");
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string replaced(std::string from, const std::string& to) {
  std::string text = source;
  text.replace(text.find(from), from.size(), to);
  return text;
}

TEST(Traffic, CountsEachTensorThatIsThereAndABroadcastDimOnce) {
  const Task task = rmsnorm_task(), bare = rmsnorm_task(false);
  Binding binding = task.workload[0];
  EXPECT_EQ(traffic(task, binding).read, (10 * 96 + 96) * 4);
  EXPECT_EQ(traffic(bare, binding).read, 10 * 96 * 4);
  EXPECT_EQ(traffic(task, binding).written, 10 * 96 * 4);
  EXPECT_FALSE(traffic(task, binding).is_read_only());
  binding.strides["x"] = {0, 1};
  EXPECT_EQ(traffic(bare, binding).read, 96 * 4);
  EXPECT_TRUE((Traffic{3200, 100}.is_read_only()));
  EXPECT_FALSE((Traffic{3199, 100}.is_read_only()));
}

TEST(KernelFile, ReadsTunablesInFileOrder) {
  const auto file = KernelFile::parse(source, "kernel.cpp");
  ASSERT_EQ(file.tunables().size(), 2u);
  EXPECT_EQ(file.tunables()[0].name, "ROWS");
  EXPECT_EQ(file.tunables()[1].tier, 3);
  EXPECT_EQ(file.defaults(), (Point{{"ROWS", 2}, {"UNROLL", 1}}));
  EXPECT_EQ(file.backend(), Backend::cpu);
}

TEST(KernelFile, RefusesATextThatWouldFillTheDisk) {
  const auto message_of = [](const std::string& text) {
    try {
      KernelFile::parse(text, "kernel.cpp");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_NE(message_of(std::string(2 << 20, ' ')).find("1 MiB at most"), std::string::npos);
  EXPECT_EQ(message_of(std::string(1 << 10, ' ')).find("1 MiB at most"), std::string::npos);
}

TEST(KernelFile, AnEditChangesOnlyTheDefault) {
  const auto file = KernelFile::parse(source, "kernel.cpp");
  const std::string edited = file.with_defaults({{"ROWS", 4}, {"UNROLL", 2}});
  std::string expected = source;
  expected.replace(expected.find("default = 2,   tier"), 11, "default = 4");
  expected.replace(expected.find("default = 1, values"), 11, "default = 2");
  EXPECT_EQ(edited, expected);
  EXPECT_EQ(KernelFile::parse(edited, "kernel.cpp").defaults(), (Point{{"ROWS", 4}, {"UNROLL", 2}}));
  EXPECT_THROW(file.with_defaults({{"ROWS", 3}}), Error);
  EXPECT_THROW(file.with_defaults({{"COLS", 1}}), Error);
}

TEST(KernelFile, RefusesABadBlockWithLineAndReason) {
  EXPECT_NE(error_of("int x;").find("no autokernel block"), std::string::npos);
  EXPECT_NE(error_of("/*autokernel\nfamily = 1").find("not closed"), std::string::npos);
  EXPECT_NE(error_of(replaced("default = 2,", "default = 3,")).find("kernel.cpp:7"), std::string::npos);
  EXPECT_NE(error_of(replaced("cdiv(M, ROWS)", "cdiv(M ROWS)")).find("kernel.cpp:18"), std::string::npos);
  EXPECT_NE(error_of(replaced("zeroed = true", "zeroes = true")).find("unknown key"), std::string::npos);
  EXPECT_NE(error_of(replaced("kernel = \"rows\"", "")).find("needs the key 'kernel'"), std::string::npos);
  EXPECT_NE(error_of(replaced("backend = \"cpu\"", "backend = \"tpu\"")).find("unknown backend"), std::string::npos);
  EXPECT_NE(error_of(replaced("tier = 1 }", "tier = 9 }")).find("`tier` is 1 to 6"), std::string::npos);
}

TEST(KernelFile, PriorsNameTunablesAndTheirValues) {
  const auto with = [](const std::string& prior) { return replaced("[[variant]]\nwhen", "[[prior]]\n" + prior + "\n[[variant]]\nwhen"); };
  const KernelFile file = KernelFile::parse(with("when = \"M > 4\"\nset = { ROWS = 4 }"), "kernel.cpp");
  ASSERT_EQ(file.priors().size(), 1u);
  EXPECT_EQ(file.priors()[0].set, (Point{{"ROWS", 4}}));
  EXPECT_NE(file.priors()[0].when.evaluate({{"M", 5}}), 0);
  EXPECT_EQ(file.priors()[0].when.evaluate({{"M", 4}}), 0);
  EXPECT_NE(KernelFile::parse(with("set = { UNROLL = 2 }"), "kernel.cpp").priors()[0].when.evaluate({}), 0);
  const std::string unknown = error_of(with("set = { LANES = 4 }"));
  EXPECT_NE(unknown.find("kernel.cpp:22"), std::string::npos) << unknown;
  EXPECT_NE(unknown.find("no such tunable"), std::string::npos) << unknown;
  EXPECT_NE(error_of(with("set = { ROWS = 3 }")).find("is not one of its `values`"), std::string::npos);
  EXPECT_NE(error_of(with("when = \"1\"")).find("needs the key 'set'"), std::string::npos);
  EXPECT_NE(error_of(with("set = { ROWS = 4 }\ntier = 1")).find("unknown key"), std::string::npos);
}

TEST(LaunchPlan, EvaluatesGridArgumentsAndScratch) {
  const auto file = KernelFile::parse(source, "kernel.cpp");
  const Task task = rmsnorm_task();
  const auto plan = make_concrete(file, task, task.workload[0], {{"ROWS", 4}, {"UNROLL", 1}}, {{"workers", 2}});
  ASSERT_EQ(plan.launches.size(), 1u);
  EXPECT_EQ(plan.launches[0].blocks(), 3);
  const auto& arguments = plan.launches[0].arguments;
  ASSERT_EQ(arguments.size(), 9u);
  EXPECT_EQ(arguments[0].kind, Argument::Kind::tensor);
  EXPECT_EQ(arguments[3].kind, Argument::Kind::scratch);
  EXPECT_EQ(arguments[6].integer, 128);
  EXPECT_EQ(arguments[7].real, 1e-6);
  EXPECT_EQ(arguments[8].integer, 7);
  EXPECT_EQ(plan.scratch[0].bytes, 2 * 96 * 4);
  const ConcretePlan again = concrete_plan_from_json(to_json(plan));
  EXPECT_EQ(to_json(again), to_json(plan));
}

TEST(LaunchPlan, PicksTheVariantThatHolds) {
  const auto file = KernelFile::parse(source, "kernel.cpp");
  const Task task = rmsnorm_task();
  Binding one = task.workload[0];
  one.dims["N"] = 1;
  one.strides.clear();
  EXPECT_EQ(make_concrete(file, task, one, file.defaults(), {{"workers", 2}}).launches[0].kernel, "single");
}

TEST(LaunchPlan, ALaunchOverlapsWhereItsPlanSaysSo) {
  const auto overlaps = [](const std::string& value, int64_t unroll) {
    std::string text = source;
    text.replace(text.find("\nkernel = \"rows\""), 0, "\noverlap = " + value);
    const Task task = rmsnorm_task();
    const Point point = {{"ROWS", 2}, {"UNROLL", unroll}};
    return make_concrete(KernelFile::parse(text, "kernel.cpp"), task, task.workload[0], point, {{"workers", 2}}).launches.at(0).overlap;
  };
  EXPECT_TRUE(overlaps("true", 1));
  EXPECT_FALSE(overlaps("false", 1));
  EXPECT_TRUE(overlaps("\"UNROLL - 1\"", 2));
  EXPECT_FALSE(overlaps("\"UNROLL - 1\"", 1));
  EXPECT_THROW(overlaps("[1]", 1), Error);
}

TEST(LaunchPlan, AnAbsentTensorIsNull) {
  const auto file = KernelFile::parse(source, "kernel.cpp");
  const Task task = rmsnorm_task(false);
  EXPECT_EQ(make_concrete(file, task, task.workload[0], file.defaults(), {{"workers", 2}}).launches[0].arguments[1].kind,
            Argument::Kind::null);
}

TEST(LaunchPlan, PreparesOnceOnlyWhatNeverChanges) {
  const std::string prepare = "[[prepare]]\nkernel = \"pack\"\ngrid = [\"N\"]\nargs = [\"weight\", \"partial\"]\n\n[[launch]]";
  const auto file = KernelFile::parse(replaced("[[launch]]", prepare), "kernel.cpp");
  Task task = rmsnorm_task();
  const auto once = make_concrete(file, task, task.workload[0], file.defaults(), {{"workers", 2}});
  ASSERT_EQ(once.prepares.size(), 1u);
  EXPECT_EQ(once.launches.size(), 1u);
  for (Tensor& tensor : task.tensors) tensor.role = tensor.role == Role::weight ? Role::data : tensor.role;
  const auto always = make_concrete(file, task, task.workload[0], file.defaults(), {{"workers", 2}});
  EXPECT_TRUE(always.prepares.empty());
  ASSERT_EQ(always.launches.size(), 2u);
  EXPECT_EQ(always.launches[0].kernel, "pack");
}

const std::string boxes_source = R"(/*autokernel
family = "rmsnorm"
backend = "cuda"
[tune]
ROWS = { values = [8, 300], default = 8, tier = 1 }
[scratch.partial]
dtype = "float32"
shape = ["M", "64"]
[tensormap.boxes]
tensor = "x"
box = ["ROWS", "16"]
swizzle = 64
[tensormap.sums]
tensor = "partial"
box = ["1", "64"]
[tensormap.unused]
tensor = "out"
box = ["1"]
[[variant]]
when = "!aligned"
[[variant.launch]]
kernel = "plain"
grid = ["M"]
args = ["x", "out"]
[[launch]]
kernel = "boxed"
grid = ["M"]
block = ["128"]
args = ["boxes", "sums", "out", "N"]
*/
)";

TEST(TensorMap, IsWhatATensorIsToBulkCopies) {
  const auto file = KernelFile::parse(boxes_source, "kernel.cu");
  Task task = rmsnorm_task();
  task.workload[0].strides["x"] = {128, 1};
  const auto plan = make_concrete(file, task, task.workload[0], file.defaults(), {});
  ASSERT_EQ(plan.tensor_maps.size(), 2u) << "only those that a launch takes";
  const ConcreteTensorMap &boxes = plan.tensor_maps[0], &sums = plan.tensor_maps[1];
  EXPECT_EQ(plan.launches[0].arguments[0].kind, Argument::Kind::tensor_map);
  EXPECT_EQ(boxes.tensor.name, "x");
  EXPECT_EQ(boxes.strides, (std::vector<int64_t>{128, 1})) << "those of the binding";
  EXPECT_EQ(boxes.shape, task.shape(task.tensor("x"), task.workload[0]));
  EXPECT_EQ(boxes.box, (std::vector<int64_t>{8, 16}));
  EXPECT_EQ(boxes.swizzle_bytes, 64);
  EXPECT_EQ(sums.tensor.kind, Argument::Kind::scratch);
  EXPECT_EQ(sums.strides, (std::vector<int64_t>{64, 1}));
  EXPECT_TRUE(touch_scratch(plan, plan.launches, "partial")) << "by its map alone";
  EXPECT_EQ(to_json(concrete_plan_from_json(to_json(plan))), to_json(plan));
}

TEST(TensorMap, IsNotForATensorThatBeginsAnywhere) {
  const auto file = KernelFile::parse(boxes_source, "kernel.cu");
  const Task task = rmsnorm_task();
  Binding binding = task.workload[0];
  binding.layout = "misaligned";
  const auto plan = make_concrete(file, task, binding, file.defaults(), {});
  EXPECT_EQ(plan.launches[0].kernel, "plain");
  EXPECT_TRUE(plan.tensor_maps.empty());
}

TEST(TensorMap, RefusesWhatTheHardwareCannotDescribe) {
  const auto error_of = [](const std::string& from, const std::string& to, const std::vector<int64_t>& strides, int64_t rows = 8) {
    std::string text = boxes_source;
    text.replace(text.find(from), from.size(), to);
    Task task = rmsnorm_task();
    task.workload[0].strides["x"] = strides;
    try {
      const auto file = KernelFile::parse(text, "kernel.cu");
      make_concrete(file, task, task.workload[0], {{"ROWS", rows}}, {});
      return std::string();
    } catch (const Error& error) {
      return std::string(error.what());
    }
  };
  const std::string box = R"(box = ["ROWS", "16"])";
  EXPECT_EQ(error_of(box, box, {128, 1}), "");
  EXPECT_NE(error_of(box, box, {126, 1}).find("kernel.cu:9: the tensor map boxes is of a tensor with a stride"), std::string::npos);
  EXPECT_NE(error_of(box, box, {128, 2}).find("last dim is not contiguous"), std::string::npos);
  EXPECT_NE(error_of(box, box, {128, 1}, 300).find("not from 1 to 256"), std::string::npos);
  EXPECT_NE(error_of(box, R"(box = ["8"])", {128, 1}).find("for each dim"), std::string::npos);
  EXPECT_NE(error_of(box, R"(box = ["8", "3"])", {128, 1}).find("rows are no multiple of 16 bytes"), std::string::npos);
  EXPECT_NE(error_of(box, R"(box = ["8", "32"])", {128, 1}).find("longer than its swizzle"), std::string::npos);
  EXPECT_NE(error_of("swizzle = 64", "swizzle = 48", {128, 1}).find("not 0, 32, 64 or 128"), std::string::npos);
  EXPECT_NE(error_of("tensor = \"x\"", "tensor = \"N\"", {128, 1}).find("no tensor and no scratch"), std::string::npos);
  EXPECT_NE(error_of("backend = \"cuda\"", "backend = \"cpu\"", {128, 1}).find("is for GPUs"), std::string::npos);
}

TEST(LaunchPlan, RefusesWhatDoesNotFit) {
  const auto file = KernelFile::parse(source, "kernel.cpp");
  const Task task = rmsnorm_task();
  Binding small = task.workload[0];
  small.dims["M"] = 1;
  EXPECT_THROW(make_concrete(file, task, small, {{"ROWS", 4}, {"UNROLL", 1}}, {{"workers", 2}}), Error);
  const auto unknown = KernelFile::parse(replaced("\"x.stride(0)\"", "\"y.stride(0)\""), "kernel.cpp");
  try {
    make_concrete(unknown, task, task.workload[0], unknown.defaults(), {{"workers", 2}});
    FAIL() << "an unknown argument was accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("kernel.cpp:16"), std::string::npos) << error.what();
  }
}

TEST(Task, IdentityIgnoresCallsAndRanking) {
  Task task = rmsnorm_task();
  const std::string id = task_id(task);
  task.workload[0].calls = 99;
  task.stability = {"large"};
  EXPECT_EQ(task_id(task), id);
  task.options["WEIGHT_OFFSET"] = 1;
  EXPECT_NE(task_id(task), id);
  EXPECT_EQ(id.rfind("rmsnorm_", 0), 0u);
}

TEST(Task, RoundTrips) {
  const Task task = rmsnorm_task();
  EXPECT_EQ(to_json(task_from_json(to_json(task))), to_json(task));
  EXPECT_THROW(task_from_json({{"schema", "autokernel.task/9"}}), Error);
  EXPECT_THROW(task_from_json({{"schema", "autokernel.task/1"}}), Error);
}

TEST(LaunchPlan, MacrosCarryPointOptionsAndTypes) {
  const auto file = KernelFile::parse(source, "kernel.cpp");
  const auto list = macros(file, rmsnorm_task(), {{"ROWS", 4}});
  const std::map<std::string, std::string> defined(list.begin(), list.end());
  EXPECT_EQ(defined.at("ROWS"), "4");
  EXPECT_EQ(defined.at("UNROLL"), "1");
  EXPECT_EQ(defined.at("WEIGHT_OFFSET"), "0");
  EXPECT_EQ(defined.at("T_weight"), "float");
  EXPECT_EQ(defined.at("AK_DIM_N"), "96");
}

TEST(LaunchPlan, MacrosOfACudaFileNameCudasTypes) {
  std::string text = source;
  text.replace(text.find("\"cpu\""), 5, "\"cuda\"");
  Task task = rmsnorm_task();
  task.dtype = Dtype::float16;
  for (Tensor& tensor : task.tensors) tensor.dtype = tensor.name == "weight" ? Dtype::bfloat16 : Dtype::float16;
  const auto list = macros(KernelFile::parse(text, "kernel.cu"), task, {});
  const std::map<std::string, std::string> defined(list.begin(), list.end());
  EXPECT_EQ(defined.at("T"), "__half");
  EXPECT_EQ(defined.at("T_x"), "__half");
  EXPECT_EQ(defined.at("T_weight"), "__nv_bfloat16");
}

}  // namespace
}  // namespace ak::kernel
