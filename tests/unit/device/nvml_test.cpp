// Who else is on a GPU, by a library that is not there.
#include "device/cuda/nvml.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <map>

namespace ak::device::cuda {
namespace {

// Function pointers carry no state, so there is one.
std::vector<unsigned> running;

NvmlFunctions fake_library() {
  NvmlFunctions fake;
  fake.nvmlInit = [] { return 0; };
  fake.nvmlSystemGetDriverVersion = [](char* version, unsigned) { return std::strcpy(version, "580.1"), 0; };
  fake.nvmlDeviceGetHandleByPciBusId = [](const char* id, nvmlDevice_t*) { return std::strcmp(id, "0000:17:00.0") == 0 ? 0 : 6; };
  fake.nvmlDeviceGetComputeRunningProcesses = [](nvmlDevice_t, unsigned* count, nvmlProcessInfo_t* infos) {
    const unsigned room = *count;
    *count = static_cast<unsigned>(running.size());
    if (room < running.size()) return int{NVML_ERROR_INSUFFICIENT_SIZE};
    for (size_t i = 0; i < running.size(); ++i) infos[i] = {running[i], i == 0 ? ~0ULL : 1000 * i, 0, 0};
    return 0;
  };
  return fake;
}

TEST(Nvml, lists_processes_however_many_there_are) {
  const NvmlFunctions fake = fake_library();
  EXPECT_FALSE(Nvml::open("0000:18:00.0", &fake));
  EXPECT_FALSE(Nvml::open("0000:17:00.0", nullptr)) << "without the library there is none";
  const auto gpu = Nvml::open("0000:17:00.0", &fake);
  ASSERT_TRUE(gpu);
  EXPECT_EQ(gpu->driver_version(), "580.1");
  running.assign(100, 2);
  running[0] = static_cast<unsigned>(::getpid());
  const auto processes = gpu->processes();
  ASSERT_EQ(processes.size(), 100u);
  EXPECT_EQ(processes[0].pid, ::getpid());
  EXPECT_NE(processes[0].name, "");
  EXPECT_EQ(processes[0].memory_bytes, 0) << "it does not say";
  EXPECT_EQ(processes[3].memory_bytes, 3000);
}

TEST(Strangers, are_those_that_do_not_descend_from_the_engine) {
  const std::map<pid_t, pid_t> parents = {{100, 50}, {110, 100}, {120, 110}, {130, 50}, {50, 1}};  // 100 is the engine, 110 its judge
  const auto parent = [&](pid_t process) {
    const auto found = parents.find(process);
    return found == parents.end() ? 0 : found->second;
  };
  const std::vector<Stranger> all = {{110, "judge", 0}, {120, "worker", 0}, {130, "game", 5}, {999, "unseen", 7}};
  const auto others = strangers(all, 110, 100, parent);
  ASSERT_EQ(others.size(), 2u);
  EXPECT_EQ(others[0].name, "game");
  EXPECT_EQ(others[1].name, "unseen");
  EXPECT_TRUE(strangers(all, 7, 100, parent).empty()) << "where the numbers are another namespace's, nothing can be told";
}

TEST(Strangers, proc_names_the_parent) {
  EXPECT_EQ(parent_of(::getpid()), ::getppid());
  EXPECT_EQ(parent_of(1 << 30), 0);
}

}  // namespace
}  // namespace ak::device::cuda
