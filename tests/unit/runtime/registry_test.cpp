// Bundles that cannot be opened say why.
#include "runtime/registry.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/architecture.h"
#include "core/error.h"
#include "core/file.h"
#include "fakes/recording_driver.h"
#include "runtime/call_site.h"
#include "runtime/cuda_instance.h"

namespace ak::runtime {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

const Json task =
    Json::parse(R"({"schema": "autokernel.task/1", "id": "copy_00000000", "family": "copy", "spelling": "s", "dtype": "float32",
  "tensors": [{"name": "x", "role": "data", "dtype": "float32", "shape": ["N"]}, {"name": "out", "role": "output", "dtype": "float32", "shape": ["N"]}],
  "scalars": {}, "options": {}, "workload": [{"dims": {"N": 12}, "strides": {"x": [1], "out": [1]}, "calls": 1}], "sweep": [], "edges": [],
  "stability": [], "tolerance": {"k": 16}, "flops": "N", "bytes": "8*N", "reference": {"kind": "family", "family": "copy", "function": "reference"}})");

Json call(int64_t n, int64_t stride) {
  return {{"inputs", {{{"name", "x"}, {"dtype", "float32"}, {"shape", {n}}, {"strides", {stride}}}}},
          {"outputs", {{{"name", "out"}, {"dtype", "float32"}, {"shape", {n}}, {"strides", {1}}}}},
          {"dims", {{"N", n}}},
          {"strides", {{"x", {stride}}, {"out", {1}}}}};
}

class RegistryTest : public testing::Test {
 protected:
  void write_bundle(const std::string& schema, const std::string& backend, const std::string& architecture = host_architecture()) {
    write_json(directory_.path() / "bundle.json", {{"schema", schema},
                                                   {"task", task},
                                                   {"kernel_file", "kernel.cpp"},
                                                   {"module", "kernel.so"},
                                                   {"backend", backend},
                                                   {"architecture", architecture},
                                                   {"point", Json::object()}});
    write_file(directory_.path() / "kernel.cpp",
               "/*autokernel\nfamily = \"copy\"\nbackend = \"cpu\"\n[[launch]]\nkernel = \"f\"\ngrid = [\"1\"]\nargs = []\n*/\n");
    write_file(directory_.path() / "kernel.so", "no ELF");
  }
  std::string error_of(const Json& call_json) {
    try {
      registry_.open(directory_.path().string(), call_json.dump(), surroundings_);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  TemporaryDirectory directory_{"registry"};
  const device::cuda::Driver& driver_ = fakes::recording_driver();
  Surroundings surroundings_{[] { return 2; }, [this]() -> const device::cuda::Driver& { return driver_; }};
  Registry registry_;
};

TEST_F(RegistryTest, a_directory_without_a_bundle) { EXPECT_THAT(error_of(call(12, 1)), HasSubstr("bundle.json")); }

TEST_F(RegistryTest, another_format) {
  write_bundle("autokernel.bundle/9", "cpu");
  EXPECT_THAT(error_of(call(12, 1)), HasSubstr("format"));
}

TEST_F(RegistryTest, another_backend) {
  write_bundle("autokernel.bundle/1", "triton");
  EXPECT_THAT(error_of(call(12, 1)), HasSubstr("is for triton"));
}

TEST_F(RegistryTest, instructions_that_this_processor_lacks_are_named_before_the_module_is_loaded) {
  write_bundle("autokernel.bundle/1", "cpu", host_architecture() + " avx4096");
  EXPECT_THAT(error_of(call(12, 1)), AllOf(HasSubstr("was made for a processor with avx4096"), Not(HasSubstr("cannot load"))));
}

TEST_F(RegistryTest, dims_and_strides_that_the_task_lacks) {
  write_bundle("autokernel.bundle/1", "cpu");
  EXPECT_THAT(error_of(call(13, 1)), HasSubstr("not made for these dims and strides"));
  EXPECT_THAT(error_of(call(12, 2)), HasSubstr("not made for these dims and strides"));
}

TEST_F(RegistryTest, a_module_that_the_loader_refuses) {
  write_bundle("autokernel.bundle/1", "cpu");
  EXPECT_THAT(error_of(call(12, 1)), HasSubstr("cannot load kernel"));
}

Json on(int device) {
  Json json = call(12, 1);
  json["device"] = device;
  return json;
}

TEST_F(RegistryTest, another_gpu) {
  write_bundle("autokernel.bundle/1", "cuda", "sm_80");
  EXPECT_THAT(error_of(on(0)), HasSubstr("was made for sm_80, this GPU is sm_90"));
}

TEST_F(RegistryTest, a_kernel_for_a_gpu_opens_on_the_gpu_of_the_call) {
  write_bundle("autokernel.bundle/1", "cuda", "sm_90");
  write_file(directory_.path() / "kernel.so", fakes::cubin());
  fakes::recording().kernels["f"] = {};
  const int64_t number = registry_.open(directory_.path().string(), on(0).dump(), surroundings_);
  EXPECT_EQ(registry_.find(number)->device_type(), DeviceType::cuda);
  EXPECT_THAT(error_of(on(1)), HasSubstr("cannot find the GPU"));
}

struct NoMemory : Caller {
  void* take(int64_t) override { return nullptr; }
  std::shared_ptr<void> keep(size_t) override { return nullptr; }
};

TEST_F(RegistryTest, a_plan_of_tensor_maps_has_another_for_tensors_that_begin_anywhere) {
  write_bundle("autokernel.bundle/1", "cuda", "sm_90");
  write_file(directory_.path() / "kernel.so", fakes::cubin());
  write_file(directory_.path() / "kernel.cpp", R"(/*autokernel
family = "copy"
backend = "cuda"
[tensormap.boxes]
tensor = "x"
box = ["4"]
[[variant]]
when = "!aligned"
[[variant.launch]]
kernel = "plain"
grid = ["1"]
args = ["x", "out"]
[[launch]]
kernel = "boxed"
grid = ["1"]
args = ["boxes", "out"]
*/
)");
  fakes::recording().kernels["boxed"] = {{128, 8}};
  fakes::recording().kernels["plain"] = {{8, 8}};
  const auto instance = registry_.find(registry_.open(directory_.path().string(), on(0).dump(), surroundings_));
  NoMemory caller;
  for (const uintptr_t x : {0x1000, 0x1004}) {
    void* const input = reinterpret_cast<void*>(x);
    void* const output = reinterpret_cast<void*>(uintptr_t{0x2000});
    dynamic_cast<CudaInstance&>(*instance).call({&input, 1}, {&output, 1}, nullptr, caller);
  }
  ASSERT_EQ(fakes::recording().launches.size(), 2u);
  EXPECT_EQ(fakes::recording().launches[0].kernel, "boxed");
  EXPECT_EQ(fakes::recording().launches[1].kernel, "plain");
}

TEST_F(RegistryTest, a_call_on_another_kind_of_device) {
  write_bundle("autokernel.bundle/1", "cuda", "sm_90");
  EXPECT_THAT(error_of(call(12, 1)), HasSubstr("is for cuda, the call is on the CPU"));
  write_bundle("autokernel.bundle/1", "cpu");
  EXPECT_THAT(error_of(on(0)), HasSubstr("is for cpu, the call is on a GPU"));
}

TEST_F(RegistryTest, a_number_that_is_not_open) {
  EXPECT_EQ(registry_.find(7), nullptr);
  registry_.close(7);
}

TEST(CallSite, what_is_missing_or_inconsistent_is_an_error) {
  EXPECT_THROW(parse_call_site("{"), Error);
  EXPECT_THROW(parse_call_site("{}"), Error);
  Json ragged = call(12, 1);
  ragged["inputs"][0]["strides"] = {1, 1};
  EXPECT_THROW(parse_call_site(ragged.dump()), Error);
  Json unknown = call(12, 1);
  unknown["inputs"][0]["dtype"] = "float7";
  EXPECT_THROW(parse_call_site(unknown.dump()), Error);
}

}  // namespace
}  // namespace ak::runtime
