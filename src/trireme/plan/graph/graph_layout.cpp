#include "trireme/plan/graph/graph_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "trireme/base/error.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

const char* const kForms =
    "give \"auto\", \"mesh 4\", \"mesh 2x2\", \"pipeline 2x1x4\" (stages, replicas, micro-batches), or \"stages 2x2+1 "
    "in 4\" (a mesh for each stage, micro-batches)";

int number_from(std::string_view word, std::string_view text) {
  int number = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number);
  if (error == std::errc() && end == word.data() + word.size() && number >= 1) return number;
  throw UsageError(fmt::format("the layout \"{}\": \"{}\" is no number of devices or micro-batches", text, word),
                   kForms);
}

std::vector<int> numbers_from(std::string_view words, std::string_view text) {
  std::vector<int> numbers;
  for (const std::string_view word : split(words, 'x')) numbers.push_back(number_from(word, text));
  return numbers;
}

StageMesh mesh_from(std::string_view words, std::string_view text) {
  const StageMesh mesh = {numbers_from(words, text)};
  if (mesh.sizes.size() == 1 || mesh.sizes.size() == 2) return mesh;
  throw UsageError(
      fmt::format("the layout \"{}\": a mesh has one or two axes, and \"{}\" has {}", text, words, mesh.sizes.size()),
      kForms);
}

}  // namespace

std::string to_string(const StageMesh& mesh) {
  std::vector<std::string> sizes;
  for (const int size : mesh.sizes) sizes.push_back(std::to_string(size));
  return join(sizes, "x");
}

int64_t GraphLayout::num_devices() const {
  int64_t sum = 0;
  for (const StageMesh& mesh : meshes) sum += mesh.num_devices();
  return sum * replicas;
}

bool GraphLayout::has_plain_stages() const {
  return std::all_of(meshes.begin(), meshes.end(), [](const StageMesh& mesh) { return mesh == StageMesh{{1}}; });
}

std::string GraphLayout::to_string() const {
  if (!is_pipeline()) return fmt::format("mesh {}", trireme::to_string(meshes[0]));
  if (has_plain_stages()) return fmt::format("pipeline {}x{}x{}", num_stages(), replicas, micro_batches);
  std::vector<std::string> words;
  for (const StageMesh& mesh : meshes) words.push_back(trireme::to_string(mesh));
  return fmt::format("stages {} in {}", join(words, "+"), micro_batches);
}

GraphLayout graph_layout_from(std::string_view text, int num_devices) {
  const size_t space = text.find(' ');
  const std::string_view kind = text.substr(0, space), rest = space == text.npos ? "" : text.substr(space + 1);
  GraphLayout layout;
  if (kind == "mesh") {
    layout.meshes = {mesh_from(rest, text)};
  } else if (kind == "pipeline") {
    const std::vector<int> numbers = numbers_from(rest, text);
    if (numbers.size() != 3 || numbers[0] == 1) {
      throw UsageError(
          fmt::format("the layout \"{}\" does not say stages (two at least), replicas and micro-batches", text),
          kForms);
    }
    layout = {std::vector<StageMesh>(static_cast<size_t>(numbers[0]), {{1}}), numbers[1], numbers[2]};
  } else if (kind == "stages" && rest.find(" in ") != rest.npos) {
    const size_t in = rest.find(" in ");
    layout.meshes.clear();
    for (const std::string_view words : split(rest.substr(0, in), '+')) layout.meshes.push_back(mesh_from(words, text));
    layout.micro_batches = number_from(rest.substr(in + 4), text);
    if (!layout.is_pipeline()) throw UsageError(fmt::format("the layout \"{}\" has one stage", text), kForms);
  } else {
    throw UsageError(fmt::format("there is no layout \"{}\"", text), kForms);
  }
  if (layout.num_devices() != num_devices) {
    throw UsageError(
        fmt::format("the layout \"{}\" is for {} workers, and there are {}", text, layout.num_devices(), num_devices),
        kForms);
  }
  return layout;
}

}  // namespace trireme
