// `trireme doctor` on GPUs: whether one can be trained on, and if not, the one thing to do.
#include <dlfcn.h>
#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "trireme/base/text.h"
#include "trireme/base/units.h"
#include "trireme/cli/doctor_facts.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

/// What the kernel's driver tells of the cards, where nvidia-smi does not.
std::vector<GpuCard> cards_of_kernel() {
  std::vector<GpuCard> cards;
  std::error_code missing;
  for (const auto& card : fs::directory_iterator("/proc/driver/nvidia/gpus", missing)) {
    std::ifstream file(card.path() / "information");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Model:")) cards.push_back({std::string(trim(line.substr(6))), 0, "", ""});
    }
  }
  return cards;
}

void list_cards(Facts& facts, const std::vector<GpuCard>& cards) {
  for (size_t i = 0; i < cards.size(); ++i) {
    std::string text = cards[i].name;
    if (cards[i].memory_bytes > 0) text += " · " + format_bytes(cards[i].memory_bytes);
    if (!cards[i].compute_capability.empty()) text += " · compute capability " + cards[i].compute_capability;
    facts.good(fmt::format("GPU {}", i), text);
  }
}

/// Where libtorch's CUDA libraries lie beside its wheel; they come in wheels of their own.
std::vector<std::string> nvidia_folders(const std::vector<std::string>& folders) {
  std::vector<std::string> all = folders;
  for (const std::string& folder : folders) {
    std::error_code missing;
    const fs::path parts = fs::path(folder).parent_path().parent_path();
    for (const fs::path& root : {parts, parts / "nvidia"}) {
      for (const auto& part : fs::directory_iterator(root, missing)) all.push_back(part.path() / "lib");
    }
  }
  return all;
}

}  // namespace

// Only the first of them that is missing says what to do: nothing else would help.
bool check_gpu(Facts& facts, const std::vector<std::string>& folders, Question& smi) {
  facts.begin_group("GPU");
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_LOCAL);
  if (driver != nullptr) dlclose(driver);
  std::vector<GpuCard> cards;
  if (driver != nullptr) cards = parse_gpu_cards(smi.whole(Deadline::after(std::chrono::seconds(3))));
  if (cards.empty()) cards = cards_of_kernel();
  std::string version = cards.empty() ? "" : cards.front().driver;
  if (version.empty()) version = read_text("/sys/module/nvidia/version");
  const bool has_card = driver != nullptr && !cards.empty();
  if (has_card) {
    facts.good("CUDA driver", version.empty() ? "unknown version" : version);
  } else if (driver != nullptr || !cards.empty()) {
    facts.absent("CUDA driver",
                 driver != nullptr ? "a driver library, but no card that it can see" : "a card, but no libcuda.so.1",
                 "CPU only", "check: nvidia-smi (in a container: docker run --gpus all)");
  } else {
    facts.absent("CUDA driver", "no NVIDIA driver", "CPU only", "where there is a card: apt install nvidia-driver");
  }
  list_cards(facts, cards);

  const std::string code = gpu_library();
  if (!code.empty()) {
    facts.good("GPU code", code);
  } else {
    facts.absent("GPU code", kNoGpuCode, has_card ? "training uses the CPU only" : "only matters with GPUs",
                 has_card ? "cmake --preset cuda && cmake --build --preset cuda (needs nvcc 13)" : "");
  }
  std::vector<std::string> missing;
  const std::vector<std::string> places = nvidia_folders(folders);
  for (const char* name : {"libcudart.so.13", "libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"}) {
    if (find_library(name, places).empty()) missing.emplace_back(name);
  }
  const bool wants_libraries = has_card && !code.empty();
  if (missing.empty()) {
    facts.good("CUDA libraries", "runtime, cuBLASLt, cuDNN and NCCL are here");
  } else {
    facts.absent("CUDA libraries", "no " + join(missing, ", "),
                 wants_libraries ? "training on the GPU cannot start" : "only matters with GPUs",
                 wants_libraries ? "tools/gpu_check --print-library-path finds those of a Python with torch" : "");
  }
  return wants_libraries && missing.empty();
}

}  // namespace trireme::cli
