// Instances on the CPU: plans resolved against published kernels, calls over any number of threads, prepared weights, and what differs in a
// call.
#include "runtime/cpu_instance.h"

#include <gtest/gtest.h>
#include "../kernels/include/autokernel/cpu.h"

#include <map>
#include <random>
#include <thread>

#include "core/error.h"

// Kernels as a kernel file has them. Their records are what a compiled file publishes.
namespace {
void scale_rows(int64_t block, int64_t worker, void* scratch, const float* x, float* out, int64_t n, float factor) {
  static_cast<int64_t*>(scratch)[0] = worker;
  for (int64_t i = 0; i < n; ++i) out[block * n + i] = x[block * n + i] * factor;
}
void double_weight(int64_t, int64_t, void*, const float* weight, float* doubled, int64_t n) {
  for (int64_t i = 0; i < n; ++i) doubled[i] = 2 * weight[i];
}
void add_rows(int64_t block, int64_t, void*, const float* x, const float* doubled, const float* absent, float* out, int64_t n) {
  if (absent != nullptr) return;
  for (int64_t i = 0; i < n; ++i) out[block * n + i] = x[block * n + i] + doubled[i];
}
void count(int64_t block, int64_t, void*, float* partial) { partial[block] += 1; }
void gather(int64_t, int64_t, void*, const float* partial, float* out, int64_t n) {
  for (int64_t i = 0; i < n; ++i) out[i] = partial[i];
}
void narrow(int64_t, int64_t, void*, const float*, int32_t) {}
}  // namespace
AK_KERNEL(scale_rows)
AK_KERNEL(double_weight)
AK_KERNEL(add_rows)
AK_KERNEL(count)
AK_KERNEL(gather)
AK_KERNEL(narrow)

namespace ak::runtime {
namespace {

using kernel::Argument;
using Kind = kernel::Argument::Kind;

class TestKernels : public Kernels {
 public:
  const KernelRecord& kernel(const std::string& name) const override {
    static const std::map<std::string, const ak::KernelRecord*> records = {
        {"scale_rows", &ak_kernel_scale_rows}, {"double_weight", &ak_kernel_double_weight},
        {"add_rows", &ak_kernel_add_rows},     {"count", &ak_kernel_count},
        {"gather", &ak_kernel_gather},         {"narrow", &ak_kernel_narrow}};
    return reinterpret_cast<const KernelRecord&>(*records.at(name));
  }
};

TensorSpec spec(const std::string& name, std::vector<int64_t> shape) {
  auto strides = kernel::contiguous_strides(shape);
  return {name, Dtype::float32, std::move(shape), std::move(strides)};
}

kernel::ConcreteLaunch launch(const std::string& name, int64_t blocks, std::vector<Argument> arguments) {
  kernel::ConcreteLaunch made;
  made.kernel = name;
  made.grid = {blocks, 1, 1};
  made.arguments = std::move(arguments);
  return made;
}

Argument tensor(const std::string& name) { return {Kind::tensor, name, 0, 0}; }
Argument scratch(const std::string& name) { return {Kind::scratch, name, 0, 0}; }
Argument integer(int64_t value) { return {Kind::integer, {}, value, 0}; }
Argument real(double value) { return {Kind::real, {}, 0, value}; }

/// The indices of the range each on a thread of its own.
int32_t on_threads(int64_t begin, int64_t end, int64_t, void (*function)(int64_t, int64_t, void*), void* context) {
  std::vector<std::thread> threads;
  for (int64_t i = begin; i < end; ++i) threads.emplace_back([=] { function(i, i + 1, context); });
  for (std::thread& thread : threads) thread.join();
  return 0;
}

/// As PyTorch does with one thread: the whole range at once.
int32_t at_once(int64_t begin, int64_t end, int64_t, void (*function)(int64_t, int64_t, void*), void* context) {
  function(begin, end, context);
  return 0;
}

int32_t refuse(int64_t, int64_t, int64_t, void (*)(int64_t, int64_t, void*), void*) { return 1; }

std::vector<float> random_floats(size_t count, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(generator);
  return values;
}

constexpr int64_t rows = 37, columns = 19;

CpuInstance scaling(int64_t workers) {
  kernel::ConcretePlan plan;
  plan.launches = {launch("scale_rows", rows, {tensor("x"), tensor("out"), integer(columns), real(1.5)})};
  plan.scratch = {{"mine", 8, false, true}};
  return {{{spec("x", {rows, columns})}, {spec("out", {rows, columns})}, {}}, plan, std::make_unique<TestKernels>(), workers, {}};
}

TEST(CpuInstance, computes_every_block_once_with_any_number_of_workers_and_threads) {
  const auto x = random_floats(rows * columns, 1);
  for (const int64_t workers : {1, 2, 5, 64}) {
    for (const ParallelFor parallel : {on_threads, at_once}) {
      CpuInstance instance = scaling(workers);
      std::vector<float> out(x.size(), -7.0f);
      void* inputs[] = {const_cast<float*>(x.data())};
      void* outputs[] = {out.data()};
      instance.call(inputs, outputs, parallel);
      for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], x[i] * 1.5f);
      EXPECT_EQ(instance.calls(), 1);
    }
  }
}

TEST(CpuInstance, serves_callers_on_several_threads_at_the_same_time) {
  CpuInstance instance = scaling(3);
  std::vector<std::thread> callers;
  std::vector<int> wrong(4, 0);
  for (unsigned caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&, caller] {
      const auto x = random_floats(rows * columns, caller);
      for (int repeat = 0; repeat < 20; ++repeat) {
        std::vector<float> out(x.size());
        void* inputs[] = {const_cast<float*>(x.data())};
        void* outputs[] = {out.data()};
        instance.call(inputs, outputs, at_once);
        for (size_t i = 0; i < x.size(); ++i) wrong[caller] += out[i] != x[i] * 1.5f;
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
  EXPECT_EQ(instance.calls(), 80);
}

TEST(CpuInstance, a_failing_parallel_loop_is_an_error) {
  CpuInstance instance = scaling(2);
  auto x = random_floats(rows * columns, 3), out = x;
  void* inputs[] = {x.data()};
  void* outputs[] = {out.data()};
  EXPECT_THROW(instance.call(inputs, outputs, refuse), Error);
}

CpuInstance adding() {
  kernel::ConcretePlan plan;
  plan.prepares = {launch("double_weight", 1, {tensor("weight"), scratch("doubled"), integer(columns)})};
  plan.launches = {
      launch("add_rows", rows, {tensor("x"), scratch("doubled"), {Kind::null, "bias", 0, 0}, tensor("out"), integer(columns)})};
  plan.scratch = {{"doubled", columns * 4, false, false}};
  return {{{spec("x", {rows, columns}), spec("weight", {columns})}, {spec("out", {rows, columns})}, {}},
          plan,
          std::make_unique<TestKernels>(),
          2,
          {"weight"}};
}

TEST(CpuInstance, prepares_again_for_other_weights_and_for_weights_overwritten_in_place) {
  CpuInstance instance = adding();
  auto x = random_floats(rows * columns, 4), first = random_floats(columns, 5), second = random_floats(columns, 6);
  std::vector<float> out(x.size());
  const auto expect_sum = [&](std::vector<float>& weight) {
    void* inputs[] = {x.data(), weight.data()};
    void* outputs[] = {out.data()};
    instance.call(inputs, outputs, at_once);
    for (size_t i = 0; i < x.size(); ++i) ASSERT_EQ(out[i], x[i] + 2 * weight[i % columns]);
  };
  expect_sum(first);
  expect_sum(second);
  expect_sum(first);
  first = random_floats(columns, 7);
  expect_sum(first);
}

TEST(CpuInstance, zeroed_scratch_is_zero_at_every_call) {
  kernel::ConcretePlan plan;
  plan.launches = {launch("count", 8, {scratch("partial")}), launch("count", 8, {scratch("partial")}),
                   launch("gather", 1, {scratch("partial"), tensor("out"), integer(8)})};
  plan.scratch = {{"partial", 32, true, false}};
  CpuInstance instance({{}, {spec("out", {8})}, {}}, plan, std::make_unique<TestKernels>(), 2, {});
  std::vector<float> out(8);
  void* outputs[] = {out.data()};
  for (int repeat = 0; repeat < 3; ++repeat) {
    instance.call({}, outputs, at_once);
    EXPECT_EQ(out, std::vector<float>(8, 2.0f));
  }
}

CpuInstance with_launch(kernel::ConcreteLaunch made) {
  kernel::ConcretePlan plan;
  plan.launches = {std::move(made)};
  return {{{spec("x", {4})}, {spec("out", {4})}, {}}, plan, std::make_unique<TestKernels>(), 1, {}};
}

TEST(CpuInstance, refuses_a_plan_that_does_not_fit_the_kernel) {
  EXPECT_THROW(with_launch(launch("scale_rows", 1, {tensor("x"), tensor("out"), integer(4)})), Error);           // one argument short
  EXPECT_THROW(with_launch(launch("scale_rows", 1, {tensor("x"), tensor("out"), real(4), real(1)})), Error);     // a float for an integer
  EXPECT_THROW(with_launch(launch("scale_rows", 1, {integer(1), tensor("out"), integer(4), real(1)})), Error);   // an integer for a pointer
  EXPECT_THROW(with_launch(launch("narrow", 1, {tensor("x"), integer(4)})), Error);                              // a 32-bit parameter
  EXPECT_THROW(with_launch(launch("scale_rows", 1, {tensor("y"), tensor("out"), integer(4), real(1)})), Error);  // no such tensor
  EXPECT_THROW(with_launch(launch("scale_rows", 1, {scratch("x"), tensor("out"), integer(4), real(1)})), Error);  // no such scratch
  EXPECT_NO_THROW(with_launch(launch("scale_rows", 1, {tensor("x"), tensor("out"), integer(4), real(1)})));
}

TEST(CpuInstance, prepare_may_read_weights_only) {
  kernel::ConcretePlan plan;
  plan.prepares = {launch("double_weight", 1, {tensor("x"), scratch("doubled"), integer(4)})};
  plan.scratch = {{"doubled", 16, false, false}};
  const CallSite site{{spec("x", {4})}, {spec("out", {4})}, {}};
  EXPECT_THROW(CpuInstance(site, plan, std::make_unique<TestKernels>(), 1, {}), Error);
  EXPECT_NO_THROW(CpuInstance(site, plan, std::make_unique<TestKernels>(), 1, {"x"}));
}

TEST(CpuInstance, says_what_differs_from_what_it_was_opened_for) {
  const CpuInstance instance = scaling(1);
  const std::vector<int64_t> shape = {rows, columns}, strides = {columns, 1}, wide = {columns + 1, 1}, other = {columns, rows};
  const auto difference = [&](Dtype dtype, const std::vector<int64_t>& sizes, const std::vector<int64_t>& steps) {
    const TensorView views[] = {{nullptr, dtype, sizes, steps}};
    return instance.difference(views);
  };
  EXPECT_EQ(difference(Dtype::float32, shape, strides), "");
  EXPECT_EQ(difference(Dtype::float16, shape, strides), "x is float16, the kernel was opened for float32");
  EXPECT_EQ(difference(Dtype::float32, other, strides), "x has shape [19, 37], the kernel was opened for [37, 19]");
  EXPECT_EQ(difference(Dtype::float32, shape, wide), "x has strides [20, 1], the kernel was opened for [19, 1]");
  EXPECT_EQ(instance.difference({}), "the kernel takes 1 inputs");
}

TEST(Difference, the_stride_of_a_dim_of_size_one_and_of_an_empty_tensor_may_be_anything) {
  const TensorSpec one{"x", Dtype::float32, {1, 5}, {5, 1}}, empty{"x", Dtype::float32, {0, 5}, {5, 1}};
  const std::vector<int64_t> one_shape = {1, 5}, empty_shape = {0, 5}, strides = {999, 1}, odd = {3, 3};
  EXPECT_EQ(difference(one, {nullptr, Dtype::float32, one_shape, strides}), "");
  EXPECT_EQ(difference(empty, {nullptr, Dtype::float32, empty_shape, odd}), "");
  EXPECT_NE(difference(one, {nullptr, Dtype::float32, one_shape, odd}), "");
}

}  // namespace
}  // namespace ak::runtime
