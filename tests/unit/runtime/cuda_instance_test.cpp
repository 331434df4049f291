// Instances on a GPU, over a driver that only writes down: grids, arguments, attributes, memory, their order, and what a captured call may
// do.
#include "runtime/cuda_instance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>

#include "core/error.h"
#include "fakes/recording_driver.h"

namespace ak::runtime {
namespace {

using namespace device::cuda;
using fakes::recording;
using kernel::Argument;
using kernel::ConcreteLaunch;
using testing::ElementsAre;
using testing::HasSubstr;
using Kind = kernel::Argument::Kind;

constexpr int64_t rows = 37, columns = 19;
const std::string image = fakes::cubin();

TensorSpec spec(const std::string& name, std::vector<int64_t> shape) {
  auto strides = kernel::contiguous_strides(shape);
  return {name, Dtype::float32, std::move(shape), std::move(strides)};
}

ConcreteLaunch launch(const std::string& name, std::vector<Argument> arguments) {
  ConcreteLaunch made;
  made.kernel = name;
  made.grid = {rows, 2, 1};
  made.block = {128, 1, 1};
  made.arguments = std::move(arguments);
  return made;
}

Argument tensor(const std::string& name) { return {Kind::tensor, name, 0, 0}; }
Argument scratch(const std::string& name) { return {Kind::scratch, name, 0, 0}; }
Argument integer(int64_t value) { return {Kind::integer, {}, value, 0}; }
Argument real(double value) { return {Kind::real, {}, 0, value}; }

void* address(uintptr_t value) { return reinterpret_cast<void*>(value); }
const CUstream stream = reinterpret_cast<CUstream>(uintptr_t{77});

struct RecordingCaller : Caller {
  void* take(int64_t bytes) override {
    recording().log.push_back("take " + std::to_string(bytes));
    return address(0x5000);
  }
  std::shared_ptr<void> keep(size_t input) override {
    inputs.push_back(input);
    return kept;
  }
  std::vector<size_t> inputs;
  std::shared_ptr<int> kept = std::make_shared<int>();
};

class CudaInstanceTest : public testing::Test {
 protected:
  CudaInstanceTest() {
    recording().kernels = {{"scale", {.parameters = {8, 8, 8, 4}}},
                           {"pack", {.parameters = {8, 8}}},
                           {"add", {.parameters = {8, 8, 8, 8}}},
                           {"split", {.parameters = {8, 8, 8}}}};
  }
  std::unique_ptr<CudaInstance> make(const kernel::ConcretePlan& plan, const std::string& code = image) {
    const CallSite site{{spec("x", {rows, columns}), spec("weight", {columns})}, {spec("out", {rows, columns})}, {}, {}};
    return std::make_unique<CudaInstance>(site, plan, std::make_unique<PrimaryContext>(0, driver_), std::vector<std::string>{code},
                                          std::vector<std::string>{"weight"});
  }
  std::unique_ptr<CudaInstance> with_launch(const ConcreteLaunch& made) {
    kernel::ConcretePlan plan;
    plan.launches = {made};
    return make(plan);
  }
  std::unique_ptr<CudaInstance> adding(bool overlap = false) {
    kernel::ConcretePlan plan;
    plan.prepares = {launch("pack", {tensor("weight"), scratch("packed")})};
    plan.launches = {launch("add", {tensor("x"), scratch("packed"), {Kind::null, "bias", 0, 0}, tensor("out")})};
    plan.launches[0].overlap = overlap;
    plan.scratch = {{"packed", 76, true, false}};
    return make(plan);
  }
  std::string error_of(const ConcreteLaunch& made) {
    try {
      with_launch(made);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }
  /// Calls with x at 0x100, the weight where told and the output at 0x300; memory is taken from 0x5000 on.
  void call(CudaInstance& instance, uintptr_t weight = 0x200) {
    void* inputs[] = {address(0x100), address(weight)};
    void* outputs[] = {address(0x300)};
    recording().log.clear();
    recording().launches.clear();
    instance.call(inputs, outputs, stream, caller_);
  }
  const std::vector<std::string>& log() { return recording().log; }
  const fakes::RecordedLaunch& launched(size_t i = 0) { return recording().launches.at(i); }

  const Driver& driver_ = fakes::recording_driver();
  RecordingCaller caller_;
};

TEST_F(CudaInstanceTest, a_launch_has_the_grid_the_arguments_and_the_stream_of_its_call) {
  auto made = launch("scale", {tensor("x"), tensor("out"), integer(-5), real(1.5)});
  made.shared_bytes = 1000;
  const auto instance = with_launch(made);
  call(*instance);
  ASSERT_THAT(log(), ElementsAre("launch scale"));
  const CUlaunchConfig& config = launched().config;
  EXPECT_EQ(config.grid_x, 37u);
  EXPECT_EQ(config.grid_y, 2u);
  EXPECT_EQ(config.grid_z, 1u);
  EXPECT_EQ(config.block_x, 128u);
  EXPECT_EQ(config.shared_bytes, 1000u);
  EXPECT_EQ(config.stream, stream);
  EXPECT_EQ(config.attribute_count, 0u);
  EXPECT_THAT(launched().arguments, ElementsAre(0x100, 0x300, std::bit_cast<uint64_t>(int64_t{-5}), std::bit_cast<uint32_t>(1.5f)));
  EXPECT_EQ(launched().context, "primary");
  EXPECT_TRUE(recording().contexts.empty());
  EXPECT_EQ(instance->calls(), 1);
}

TEST_F(CudaInstanceTest, integers_of_32_bits_are_passed_as_such) {
  recording().kernels["narrow"] = {.parameters = {8, 4, 8}};
  const auto instance = with_launch(launch("narrow", {tensor("x"), {Kind::integer32, {}, -7, 0}, integer(1LL << 40)}));
  call(*instance);
  EXPECT_THAT(launched().arguments, ElementsAre(0x100, std::bit_cast<uint32_t>(int32_t{-7}), uint64_t{1} << 40));
  EXPECT_THAT(error_of(launch("narrow", {tensor("x"), integer(1), integer(2)})), HasSubstr("not of the type"));
}

TEST_F(CudaInstanceTest, calls_with_an_unaligned_tensor_go_to_the_other_module) {
  const auto instance = with_launch(launch("scale", {tensor("x"), tensor("out"), integer(1), real(1)}));
  instance->set_unaligned(with_launch(launch("split", {tensor("x"), tensor("weight"), tensor("out")})));
  call(*instance);
  EXPECT_THAT(log(), ElementsAre("launch scale"));
  call(*instance, 0x208);
  EXPECT_THAT(log(), ElementsAre("launch split"));
  EXPECT_EQ(instance->calls(), 2);
}

TEST_F(CudaInstanceTest, attributes_are_those_that_the_plan_asks_for) {
  auto made = launch("scale", {tensor("x"), tensor("out"), integer(1), real(1)});
  made.grid = {32, 1, 1};
  made.cluster = {16, 1, 1};
  made.cooperative = made.overlap = true;
  made.shared_bytes = 200 << 10;
  const auto instance = with_launch(made);
  EXPECT_THAT(log(), testing::IsSupersetOf({"set scale 8 204800", "set scale 14 1"}));
  call(*instance);
  const auto& attributes = launched().attributes;
  ASSERT_EQ(attributes.size(), 3u);
  EXPECT_EQ(attributes[0].id, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
  EXPECT_EQ(attributes[0].value.cluster.x, 16u);
  EXPECT_EQ(attributes[0].value.cluster.y, 1u);
  EXPECT_EQ(attributes[1].id, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
  EXPECT_EQ(attributes[2].id, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
  EXPECT_EQ(attributes[2].value.flag, 1);
}

TEST_F(CudaInstanceTest, shared_memory_is_the_most_that_any_launch_of_the_kernel_asks_for) {
  kernel::ConcretePlan plan;
  for (const int64_t bytes : {100 << 10, 200 << 10, 150 << 10}) {
    plan.launches.push_back(launch("scale", {tensor("x"), tensor("out"), integer(1), real(1)}));
    plan.launches.back().shared_bytes = bytes;
  }
  const auto instance = make(plan);
  EXPECT_EQ(recording().kernels["scale"].dynamic_shared_bytes, 200 << 10);
}

TEST_F(CudaInstanceTest, scratch_is_one_piece_aligned_and_zeroed_where_declared_before_the_launches) {
  kernel::ConcretePlan plan;
  plan.launches = {launch("split", {scratch("first"), scratch("counter"), scratch("second")}),
                   launch("scale", {tensor("x"), tensor("out"), integer(1), real(1)})};
  plan.scratch = {{"first", 1000, false, false}, {"counter", 4, true, false}, {"second", 8, false, false}};
  const auto instance = make(plan);
  for (int repeat = 0; repeat < 2; ++repeat) {
    call(*instance);
    EXPECT_THAT(log(), ElementsAre("take 1536", "memset 20480 0 256", "launch split", "launch scale"));
    EXPECT_THAT(launched().arguments, ElementsAre(0x5100, 0x5000, 0x5500));
  }
}

TEST_F(CudaInstanceTest, weights_are_prepared_once_for_each_address_and_ready_before_any_stream_reads_them) {
  const auto instance = adding();
  call(*instance);
  const uint64_t packed = launched(0).arguments[1];
  EXPECT_THAT(log(), ElementsAre("relaxed", "alloc 256", HasSubstr("memset"), "launch pack", "synchronize", "global", "launch add"));
  EXPECT_THAT(launched(0).arguments, ElementsAre(0x200, packed));
  EXPECT_THAT(launched(1).arguments, ElementsAre(0x100, packed, 0, 0x300));
  call(*instance);
  EXPECT_THAT(log(), ElementsAre("launch add"));
  EXPECT_EQ(launched().arguments[1], packed);
  call(*instance, 0x999);
  EXPECT_NE(launched(1).arguments[1], packed);
  EXPECT_EQ(launched(0).arguments[0], 0x999u);
  call(*instance);
  EXPECT_THAT(log(), ElementsAre("launch add"));
  EXPECT_EQ(launched().arguments[1], packed);
}

TEST_F(CudaInstanceTest, weights_that_were_prepared_keep_their_addresses_until_it_is_closed) {
  auto instance = adding();
  call(*instance);
  call(*instance);
  EXPECT_THAT(caller_.inputs, ElementsAre(1));
  EXPECT_EQ(caller_.kept.use_count(), 2);
  instance.reset();
  EXPECT_EQ(caller_.kept.use_count(), 1);
}

TEST_F(CudaInstanceTest, weights_that_are_new_at_every_call_are_prepared_in_the_call_and_hold_no_memory) {
  const auto instance = adding(true);
  for (uintptr_t weight = 0x1000; weight < 0x1004; ++weight) call(*instance, weight);
  for (uintptr_t weight = 0x2000; weight < 0x2003; ++weight) {
    call(*instance, weight);
    EXPECT_THAT(log(), ElementsAre("take 256", "memset 20480 0 256", "launch pack", "launch add"));
    EXPECT_TRUE(launched(1).attributes.empty());
  }
  EXPECT_EQ(recording().allocated.size(), 4u);
  EXPECT_EQ(caller_.kept.use_count(), 5);
}

TEST_F(CudaInstanceTest, changed_weights_are_prepared_anew_in_place_since_a_graph_may_hold_the_address) {
  const auto instance = adding();
  call(*instance);
  const uint64_t packed = launched(0).arguments[1];
  instance->weights_changed();
  call(*instance);
  EXPECT_THAT(log(), ElementsAre("relaxed", HasSubstr("memset"), "launch pack", "synchronize", "global", "launch add"));
  EXPECT_EQ(launched(0).arguments[1], packed);
  call(*instance);
  EXPECT_THAT(log(), ElementsAre("launch add"));
}

TEST_F(CudaInstanceTest, a_captured_call_neither_allocates_nor_waits) {
  const auto instance = adding(true);
  recording().capturing = true;
  for (int repeat = 0; repeat < 2; ++repeat) {
    call(*instance);
    EXPECT_THAT(log(), ElementsAre("take 256", "memset 20480 0 256", "launch pack", "launch add"));
    EXPECT_TRUE(launched(1).attributes.empty()) << "it would overlap with what makes its weights";
  }
  recording().capturing = false;
  call(*instance);
  recording().capturing = true;
  call(*instance);
  EXPECT_THAT(log(), ElementsAre("launch add"));
  EXPECT_EQ(launched().attributes.size(), 1u);
}

TEST_F(CudaInstanceTest, a_grid_of_no_block_is_not_launched) {
  auto made = launch("scale", {tensor("x"), tensor("out"), integer(1), real(1)});
  made.grid = {0, 1, 1};
  const auto instance = with_launch(made);
  call(*instance);
  EXPECT_TRUE(log().empty());
}

TEST_F(CudaInstanceTest, a_launch_that_fails_is_an_error_and_leaves_the_threads_context) {
  const auto instance = with_launch(launch("scale", {tensor("x"), tensor("out"), integer(1), real(1)}));
  recording().failing_launch = CUDA_ERROR_INVALID_VALUE;
  EXPECT_THROW(call(*instance), Error);
  EXPECT_TRUE(recording().contexts.empty());
}

TEST_F(CudaInstanceTest, refuses_a_plan_that_does_not_fit) {
  const auto good = launch("scale", {tensor("x"), tensor("out"), integer(1), real(1)});
  EXPECT_EQ(error_of(good), "no error");
  EXPECT_THAT(error_of(launch("absent", {})), HasSubstr("cannot find kernel absent: named symbol not found"));
  EXPECT_THAT(error_of(launch("scale", {tensor("x"), tensor("out"), integer(1)})), HasSubstr("3 arguments, it takes 4"));
  EXPECT_THAT(error_of(launch("pack", {tensor("x"), tensor("out"), integer(1)})), HasSubstr("3 arguments, it takes 2"));
  EXPECT_THAT(error_of(launch("scale", {tensor("x"), tensor("out"), real(1), real(1)})), HasSubstr("argument 2 of scale"));
  EXPECT_THAT(error_of(launch("scale", {tensor("y"), tensor("out"), integer(1), real(1)})), HasSubstr("tensor y"));
  auto large = good;
  large.block = {1024, 2, 1};
  EXPECT_THAT(error_of(large), HasSubstr("the block of scale is too large"));
  large = good;
  large.grid = {1, 65536, 1};
  EXPECT_THAT(error_of(large), HasSubstr("the grid of scale is too large"));
  large = good;
  large.cluster = {2, 1, 1};
  EXPECT_THAT(error_of(large), HasSubstr("no multiple of its cluster"));
  recording().kernels["scale"].static_shared_bytes = 1024;
  large = good;
  large.shared_bytes = 227 << 10;
  EXPECT_THAT(error_of(large), HasSubstr("more shared memory"));
  kernel::ConcretePlan plan;
  plan.scratch = {{"mine", 8, false, true}};
  EXPECT_THROW(make(plan), Error);
  EXPECT_THROW(make({}, "no ELF"), Error);
}

TEST_F(CudaInstanceTest, tensor_maps_are_of_the_tensors_of_the_call) {
  recording().kernels["boxed"] = {{128, 128, 8}};
  kernel::ConcretePlan plan;
  plan.scratch = {{"packed", 4096, false, false}};
  plan.tensor_maps = {{"weight boxes", tensor("weight"), Dtype::float32, {rows, columns}, {32, 1}, {1, 4}, 0},
                      {"packed boxes", scratch("packed"), Dtype::float32, {16, 64}, {64, 1}, {2, 64}, 0}};
  plan.launches = {launch("boxed", {{Kind::tensor_map, "packed boxes", 0, 0}, {Kind::tensor_map, "weight boxes", 0, 0}, tensor("out")})};
  const auto instance = make(plan);
  for (const uintptr_t weight : {0x1000, 0x7000}) {
    call(*instance, weight);
    const auto& launched = recording().launches.back();
    EXPECT_EQ(launched.maps.at(0).opaque[0], 0x5000u) << "what the caller gave for the scratch";
    EXPECT_EQ(launched.maps.at(1).opaque[0], weight);
    EXPECT_EQ(launched.maps.at(1).opaque[4], static_cast<uint64_t>(columns));
  }
  EXPECT_THROW(call(*instance, 0x1004), Error);
}

TEST_F(CudaInstanceTest, what_it_holds_goes_back_when_it_is_closed) {
  auto instance = adding();
  call(*instance);
  EXPECT_EQ(recording().modules, 1);
  EXPECT_EQ(recording().allocated.size(), 1u);
  instance.reset();
  EXPECT_EQ(recording().modules, 0);
  EXPECT_TRUE(recording().allocated.empty());
  EXPECT_EQ(recording().retained, 0);
  EXPECT_THROW(with_launch(launch("absent", {})), Error);
  EXPECT_EQ(recording().modules, 0);
  EXPECT_EQ(recording().retained, 0);
}

}  // namespace
}  // namespace ak::runtime
