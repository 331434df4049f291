// Opens bundles, and keeps what is open.
#include "runtime/registry.h"

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <nlohmann/json.hpp>

#include "core/architecture.h"
#include "core/error.h"
#include "core/file.h"
#include "core/hash.h"
#include "device/cuda/facts.h"
#include "device/cuda/images.h"
#include "kernel/kernel_file.h"
#include "kernel/launch_plan.h"
#include "kernel/task.h"
#include "kernel/triton.h"
#include "runtime/cpu_instance.h"
#include "runtime/cuda_instance.h"

namespace ak::runtime {
namespace {

using std::filesystem::path;

/// What bundle.json says.
struct Bundle {
  path directory;
  kernel::Task task;
  std::string kernel_file, module, unaligned_module, architecture, backend;  // unaligned_module: of Triton alone
  kernel::Point point;
};

Bundle read_bundle(const path& directory) try {
  const Json json = read_json(directory / "bundle.json");
  if (json.at("schema") != "autokernel.bundle/1") throw Error(directory.string() + " is of a format that this runtime does not know");
  const std::string backend = json.at("backend");
  if (backend != "cpu" && backend != "cuda" && backend != "triton")
    throw Error(directory.string() + " is for " + backend + ", which this runtime does not launch");
  return {directory,
          kernel::task_from_json(json.at("task")),
          json.at("kernel_file"),
          json.at("module"),
          json.value("unaligned_module", std::string()),
          json.at("architecture"),
          backend,
          json.at("point")};
} catch (const Json::exception& error) {
  throw Error((directory / "bundle.json").string() + ": " + error.what(), "export the run again");
}

/// As `module` of the bundle wants it launched.
kernel::ConcretePlan plan_of(const Bundle& bundle, const std::string& module, const kernel::Binding& binding, const Bindings& facts) {
  const auto file = kernel::KernelFile::read(bundle.directory / bundle.kernel_file);
  kernel::ConcretePlan plan = kernel::make_concrete(file, bundle.task, binding, bundle.point, facts);
  return file.backend() == kernel::Backend::triton ? kernel::with_triton_module(std::move(plan), bundle.directory / module) : plan;
}

/// Before the module is loaded: an instruction that the processor lacks ends the process.
void require_runs_here(const Bundle& bundle) {
  const std::string missing = missing_instructions(bundle.architecture, host_architecture());
  if (!missing.empty()) {
    throw Error("the kernel of " + bundle.directory.string() + " was made for a processor with " + missing,
                "run `autokernel verify` of its run on this machine, which compiles it again");
  }
}

/// Strides of dims of size 1 may be anything.
bool same_strides(const kernel::Task& task, const kernel::Binding& a, const kernel::Binding& b) {
  return std::ranges::all_of(task.tensors, [&](const kernel::Tensor& tensor) {
    if (tensor.absent) return true;
    const auto shape = task.shape(tensor, a), left = task.strides(tensor, a), right = task.strides(tensor, b);
    for (size_t i = 0; i < shape.size(); ++i) {
      if (shape[i] != 1 && left[i] != right[i]) return false;
    }
    return true;
  });
}

/// The module may have been compiled for the shapes of its task, so no others will do.
void require_in_workload(const Bundle& bundle, const kernel::Binding& binding) {
  const bool found = std::ranges::any_of(bundle.task.workload, [&](const kernel::Binding& known) {
    return known.dims == binding.dims && same_strides(bundle.task, known, binding);
  });
  if (!found) throw Error("the kernel of " + bundle.directory.string() + " was not made for these dims and strides");
}

std::vector<std::string> weights_of(const kernel::Task& task) {
  std::vector<std::string> names;
  for (const kernel::Tensor& tensor : task.tensors) {
    if (tensor.role == kernel::Role::weight && !tensor.absent) names.push_back(tensor.name);
  }
  return names;
}

/// A positive number that is the same in every process for the same bundle and call.
int64_t number_of(const Bundle& bundle, const std::string& call_json) {
  std::string content = read_file(bundle.directory / "bundle.json");
  content += content_hash(read_file(bundle.directory / bundle.kernel_file)) + content_hash(read_file(bundle.directory / bundle.module));
  return static_cast<int64_t>(std::stoull(short_hash(content + call_json, 15), nullptr, 16));
}

std::shared_ptr<Instance> make_cpu_instance(const Bundle& bundle, CallSite site, const Surroundings& surroundings) {
  require_runs_here(bundle);
  const int64_t workers = surroundings.threads();
  const auto plan = plan_of(bundle, bundle.module, site.binding, {{"workers", workers}});
  auto module = std::make_unique<KernelModule>((bundle.directory / bundle.module).string());
  return std::make_shared<CpuInstance>(std::move(site), plan, std::move(module), workers, weights_of(bundle.task));
}

Bindings gpu_facts(int index, const Surroundings& surroundings) {
  const PrimaryContext context(index, surroundings.driver());
  return device::cuda::facts(context.device(), surroundings.driver());
}

std::shared_ptr<Instance> make_cuda_instance(const Bundle& bundle, const CallSite& site, const Surroundings& surroundings) {
  const device::cuda::Driver& driver = surroundings.driver();
  auto context = std::make_unique<PrimaryContext>(*site.gpu, driver);
  const std::string here = device::cuda::architecture(context->device(), driver);
  if (bundle.architecture != here)
    throw Error("the kernel of " + bundle.directory.string() + " was made for " + bundle.architecture + ", this GPU is " + here,
                "run `autokernel verify` of its run on this machine, which compiles it again");
  const Bindings facts = device::cuda::facts(context->device(), driver);
  const auto make = [&](const kernel::ConcretePlan& plan, const std::string& name, std::unique_ptr<PrimaryContext> own) {
    return std::make_unique<CudaInstance>(site, plan, std::move(own), device::cuda::read_images(bundle.directory / name),
                                          weights_of(bundle.task));
  };
  const kernel::ConcretePlan plan = plan_of(bundle, bundle.module, site.binding, facts);
  std::shared_ptr<CudaInstance> instance = make(plan, bundle.module, std::move(context));
  if (!bundle.unaligned_module.empty() || !plan.tensor_maps.empty()) {
    const std::string& module = bundle.unaligned_module.empty() ? bundle.module : bundle.unaligned_module;
    kernel::Binding unaligned = site.binding;
    unaligned.layout = "misaligned";
    instance->set_unaligned(make(plan_of(bundle, module, unaligned, facts), module, std::make_unique<PrimaryContext>(*site.gpu, driver)));
  }
  return instance;
}

std::shared_ptr<Instance> make_instance(const Bundle& bundle, const std::string& call_json, const Surroundings& surroundings) {
  CallSite site = parse_call_site(call_json);
  require_in_workload(bundle, site.binding);
  if (site.gpu.has_value() != (bundle.backend != "cpu"))
    throw Error(bundle.directory.string() + " is for " + bundle.backend + ", the call is on " + (site.gpu ? "a GPU" : "the CPU"));
  return site.gpu ? make_cuda_instance(bundle, site, surroundings) : make_cpu_instance(bundle, std::move(site), surroundings);
}

}  // namespace

std::string plan_of_bundle(const std::string& bundle_directory, const std::string& call_json, const Surroundings& surroundings) {
  const Bundle bundle = read_bundle(bundle_directory);
  const CallSite site = parse_call_site(call_json);
  require_in_workload(bundle, site.binding);
  const Bindings facts = site.gpu ? gpu_facts(*site.gpu, surroundings) : Bindings{{"workers", surroundings.threads()}};
  Json plan = kernel::to_json(plan_of(bundle, bundle.module, site.binding, facts));
  plan["macros"] = kernel::macros(kernel::KernelFile::read(bundle.directory / bundle.kernel_file), bundle.task, bundle.point);
  return plan.dump();
}

int64_t Registry::open(const std::string& bundle_directory, const std::string& call_json, const Surroundings& surroundings) {
  const Bundle bundle = read_bundle(bundle_directory);
  const int64_t number = number_of(bundle, call_json);
  const std::unique_lock lock(mutex_);
  if (const auto found = entries_.find(number); found != entries_.end()) {
    found->second.instance->weights_changed();
    ++found->second.users;
    return number;
  }
  entries_[number] = {make_instance(bundle, call_json, surroundings), 1};
  return number;
}

std::shared_ptr<Instance> Registry::find(int64_t number) const {
  const std::shared_lock lock(mutex_);
  const auto found = entries_.find(number);
  return found == entries_.end() ? nullptr : found->second.instance;
}

void Registry::weights_changed() {
  const std::unique_lock lock(mutex_);
  for (const auto& [number, entry] : entries_) entry.instance->weights_changed();
}

void Registry::close(int64_t number) {
  const std::unique_lock lock(mutex_);
  const auto found = entries_.find(number);
  if (found != entries_.end() && --found->second.users == 0) entries_.erase(found);
}

}  // namespace ak::runtime
