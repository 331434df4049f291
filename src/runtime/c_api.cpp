// The C API: nothing throws across it.
#include "runtime/autokernel.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "core/confinement.h"
#include "core/error.h"
#include "graph/family.h"
#include "graph/graph.h"
#include "graph/match.h"
#include "graph/pattern.h"
#include "runtime/registry.h"
#include "runtime/torch_op.h"

namespace {

thread_local std::string last_error;

/// A C API has nowhere else to keep them. Never destroyed: other threads may still call a kernel while the process exits.
ak::runtime::Registry& registry() {
  static auto* instances = new ak::runtime::Registry;
  return *instances;
}

std::shared_ptr<ak::runtime::Instance> find_instance(int64_t number) { return registry().find(number); }

template <class Result, class Function>
Result guarded(Result on_error, Function&& function) noexcept {
  try {
    return function();
  } catch (const ak::Error& error) {
    last_error = error.what_to_do().empty() ? error.what() : std::string(error.what()) + ": " + error.what_to_do();
  } catch (const std::exception& error) {
    last_error = error.what();
  }
  return on_error;
}

/// errors: malformed JSON, graphs, patterns or families.
ak::Json match_regions(const char* graph_json, const char* patterns_json, const char* families_directory) {
  const auto families = ak::graph::load_families(families_directory);
  const auto patterns = ak::graph::parse_patterns(ak::Json::parse(patterns_json), families);
  ak::Json regions = ak::Json::array();
  for (const auto& region : ak::graph::match(ak::graph::parse_graphs(ak::Json::parse(graph_json)), patterns, families)) {
    regions.push_back(to_json(region));
  }
  return {{"regions", std::move(regions)}};
}

/// errors: malformed rules; Landlock is there and refuses them.
ak::Json confine(const ak::Json& rules) {
  using Access = ak::FileRule::Access;
  std::vector<ak::FileRule> files;
  for (const auto& [name, access] : {std::pair("read", Access::read), {"run", Access::run}, {"write", Access::write}}) {
    for (const auto& path : rules.at(name)) files.push_back({access, path.get<std::string>()});
  }
  const int landlock = ak::landlock_version() >= ak::landlock_with_moves ? ak::restrict_files(files) : 0;
  ak::Json levels = ak::Json::array();
  if (landlock > 0) levels.push_back("files");
  if (ak::restrict_calls({.programs = true, .signals_scoped = landlock >= ak::landlock_with_signals})) levels.push_back("calls");
  return {{"levels", std::move(levels)}};
}

/// A copy for the caller, who frees it with ak_free.
char* allocated(const std::string& text) {
  char* copy = strdup(text.c_str());
  if (copy == nullptr) throw std::bad_alloc();
  return copy;
}

}  // namespace

char* ak_match(const char* graph_json, const char* patterns_json, const char* families_directory) {
  return guarded<char*>(nullptr, [&] { return allocated(match_regions(graph_json, patterns_json, families_directory).dump()); });
}

int64_t ak_open(const char* bundle_directory, const char* call_json) {
  return guarded<int64_t>(-1, [&] {
    return registry().open(bundle_directory, call_json, {ak::runtime::torch_threads, ak::device::cuda::driver});
  });
}

char* ak_plan(const char* bundle_directory, const char* call_json) {
  return guarded<char*>(nullptr, [&] {
    const ak::runtime::Surroundings here{ak::runtime::torch_threads, ak::device::cuda::driver};
    return allocated(ak::runtime::plan_of_bundle(bundle_directory, call_json, here));
  });
}

char* ak_confine(const char* rules_json) {
  return guarded<char*>(nullptr, [&] { return allocated(confine(ak::Json::parse(rules_json)).dump()); });
}

int ak_register(void) {
  return guarded<int>(-1, [] {
    static const bool once = (ak::runtime::register_operators(find_instance), true);
    return once ? 0 : -1;
  });
}

int64_t ak_calls(int64_t instance) {
  const auto found = registry().find(instance);
  return found ? found->calls() : -1;
}

void ak_weights_changed(void) { registry().weights_changed(); }

void ak_close(int64_t instance) { registry().close(instance); }

const char* ak_last_error(void) { return last_error.c_str(); }

void ak_free(char* text) { std::free(text); }
