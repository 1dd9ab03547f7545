// What `trireme doctor` has found, line by line, and the checks that have files of their own.
#pragma once

#include <string>
#include <vector>

#include "trireme/cli/probe.h"

namespace trireme::cli {

enum class State { kGood, kAbsent, kBroken };  // shown as ✓ – ✗

struct Fact {
  std::string group, name;
  State state;
  std::string text;
  std::string cost, cure;  // of what is absent or broken
};

class Facts {
 public:
  void good(const std::string& name, const std::string& text) { add(name, State::kGood, text); }
  void absent(const std::string& name, const std::string& text, const std::string& cost, const std::string& cure) {
    add(name, State::kAbsent, text, cost, cure);
  }
  /// Something that no job can do without.
  void broken(const std::string& name, const std::string& text, const std::string& cost, const std::string& cure) {
    add(name, State::kBroken, text, cost, cure);
  }
  void begin_group(const std::string& name) { group_ = name; }
  const std::vector<Fact>& all() const { return facts_; }

 private:
  void add(const std::string& name, State state, const std::string& text, const std::string& cost = {},
           const std::string& cure = {}) {
    facts_.push_back({group_, name, state, text, cost, cure});
  }

  std::string group_;
  std::vector<Fact> facts_;
};

/// Driver, cards, the build's GPU code, the CUDA libraries. `folders`: where trireme-tensor looks for libraries. `smi`
/// was asked with gpu_card_arguments(). True where training on a GPU can start.
bool check_gpu(Facts& facts, const std::vector<std::string>& folders, Question& smi);

}  // namespace trireme::cli
