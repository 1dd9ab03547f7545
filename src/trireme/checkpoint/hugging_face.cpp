#include "trireme/checkpoint/hugging_face.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/text.h"
#include "trireme/checkpoint/hugging_face_names.h"

namespace trireme {
namespace {

constexpr size_t kMostProblems = 20;  // listed by name; more of them are counted

/// Tensors by name, as a set that is used up: what nobody took is unknown. Gathers all problems before it throws.
class Source {
 public:
  explicit Source(std::string what) : what_(std::move(what)) {}

  void add(std::string name, const TensorView& tensor) {
    if (!tensors_.try_emplace(name, tensor).second) problem(fmt::format("{} is there twice", name));
  }
  const TensorView* find(const std::string& name) const {
    const auto found = tensors_.find(name);
    return found == tensors_.end() ? nullptr : &found->second;
  }
  /// Null where it is missing or wrong.
  const TensorView* take(const std::string& name, const std::vector<int64_t>& shape) {
    const TensorView* tensor = find(name);
    if (!tensor) {
      problem(fmt::format("{} {} is missing", name, sizes_text(shape)));
      return nullptr;
    }
    taken_.push_back(name);
    if (tensor->info.shape != shape) {
      problem(fmt::format("{} is {}, not {}", name, sizes_text(tensor->info.shape), sizes_text(shape)));
      return nullptr;
    }
    if (tensor->bytes.size() != tensor->info.num_bytes()) {
      problem(fmt::format("{} has {} bytes, not {}", name, tensor->bytes.size(), tensor->info.num_bytes()));
      return nullptr;
    }
    return tensor;
  }
  void problem(std::string text) { problems_.push_back(std::move(text)); }

  void finish() {
    std::ranges::sort(taken_);
    for (const auto& [name, tensor] : tensors_) {
      if (!std::ranges::binary_search(taken_, name)) {
        problem(fmt::format("{} {} is unknown", name, sizes_text(tensor.info.shape)));
      }
    }
    if (problems_.empty()) return;
    const size_t num_listed = std::min(problems_.size(), kMostProblems);
    std::string list = join(std::span(problems_).first(num_listed), "\n    ");
    if (num_listed < problems_.size()) list += fmt::format("\n    and {} more", problems_.size() - num_listed);
    throw Error(fmt::format("{} do not fit the model:\n    {}", what_, list),
                "check [model]: layers, hidden, heads, kv_heads, ffn, seq, vocab and tied");
  }

 private:
  std::string what_;
  std::map<std::string, TensorView> tensors_;
  std::vector<std::string> taken_;
  std::vector<std::string> problems_;
};

/// [rows, columns] → [columns, rows], for elements of any size.
void transpose(const std::byte* in, size_t rows, size_t columns, size_t element_bytes, std::byte* out) {
  constexpr size_t kTile = 32;  // both sides of a tile stay in cache
  for (size_t r0 = 0; r0 < rows; r0 += kTile) {
    for (size_t c0 = 0; c0 < columns; c0 += kTile) {
      for (size_t r = r0; r < std::min(rows, r0 + kTile); ++r) {
        for (size_t c = c0; c < std::min(columns, c0 + kTile); ++c) {
          std::memcpy(out + (c * rows + r) * element_bytes, in + (r * columns + c) * element_bytes, element_bytes);
        }
      }
    }
  }
}

OwnedTensor make_tensor(std::string name, DataType type, std::vector<int64_t> shape) {
  OwnedTensor tensor{{std::move(name), type, std::move(shape)}, {}};
  tensor.bytes.resize(tensor.info.num_bytes());
  return tensor;
}

/// Copies, or turns: `view` has two dims then.
void copy_turned(const TensorView& view, bool turned, std::byte* out) {
  if (!turned) {
    std::ranges::copy(view.bytes, out);
    return;
  }
  transpose(view.bytes.data(), static_cast<size_t>(view.info.shape[0]), static_cast<size_t>(view.info.shape[1]),
            size_of(view.info.type), out);
}

/// Buffers of other versions that are no weights.
bool is_ignored(ModelKind kind, std::string_view name) {
  if (kind == ModelKind::kLlama) return name.ends_with(".rotary_emb.inv_freq");
  return name.ends_with(".attn.bias") || name.ends_with(".attn.masked_bias");
}

/// The name with the prefix that a bare GPT2Model leaves out.
std::string full_name(ModelKind kind, const std::string& name) {
  if (kind != ModelKind::kGpt2 || name.starts_with("transformer.") || name == "lm_head.weight") return name;
  return "transformer." + name;
}

}  // namespace

std::vector<OwnedTensor> to_hugging_face(const ModelConfig& config, std::span<const TensorView> tensors) {
  const auto rules = hugging_face_rules(config);
  Source source("the tensors to export");
  for (const TensorView& tensor : tensors) source.add(tensor.info.name, tensor);
  std::vector<OwnedTensor> out;
  for (const NameRule& rule : rules) {
    const TensorView* ours = source.take(rule.ours, rule.shape);
    if (!ours) continue;
    size_t offset = 0;
    for (const auto& part : rule.theirs) {
      OwnedTensor theirs = make_tensor(part.name, ours->info.type, rule.their_shape(part));
      TensorView piece{ours->info, ours->bytes.subspan(offset, theirs.bytes.size())};
      piece.info.shape[0] = part.rows;
      copy_turned(piece, rule.transposed, theirs.bytes.data());
      offset += theirs.bytes.size();
      out.push_back(std::move(theirs));
    }
  }
  source.finish();
  return out;
}

std::vector<OwnedTensor> from_hugging_face(const ModelConfig& config, std::span<const TensorView> tensors) {
  const auto rules = hugging_face_rules(config);
  Source source("the tensors to import");
  for (const TensorView& tensor : tensors) {
    if (!is_ignored(config.kind, tensor.info.name)) source.add(full_name(config.kind, tensor.info.name), tensor);
  }
  std::vector<OwnedTensor> out;
  for (const NameRule& rule : rules) {
    OwnedTensor ours;
    size_t offset = 0;
    for (const auto& part : rule.theirs) {
      const TensorView* theirs = source.take(part.name, rule.their_shape(part));
      if (!theirs) continue;
      if (ours.bytes.empty()) ours = make_tensor(rule.ours, theirs->info.type, rule.shape);
      if (theirs->info.type != ours.info.type) {
        source.problem(fmt::format("{} is {}, its neighbours are {}", part.name, name_of(theirs->info.type),
                                   name_of(ours.info.type)));
        continue;
      }
      if (offset + theirs->bytes.size() <= ours.bytes.size()) {
        copy_turned(*theirs, rule.transposed, ours.bytes.data() + offset);
      }
      offset += theirs->bytes.size();
    }
    out.push_back(std::move(ours));
  }
  if (config.tied && source.find("lm_head.weight")) {
    const TensorView* head = source.take("lm_head.weight", {config.vocab, config.hidden});
    const TensorView* token = source.find(rules.front().theirs.front().name);
    if (head && token && !std::ranges::equal(head->bytes, token->bytes)) {
      source.problem("lm_head.weight differs from the embedding: these weights are not tied (model.tied = false)");
    }
  }
  source.finish();
  return out;
}

std::string hugging_face_config(const ModelConfig& c, DataType type) {
  Json json;
  const auto type_name = [type]() -> std::string {
    switch (type) {
      case DataType::kHalf:
        return "float16";
      case DataType::kBFloat16:
        return "bfloat16";
      case DataType::kDouble:
        return "float64";
      default:
        return "float32";
    }
  };
  if (c.kind == ModelKind::kGpt2) {
    json = {{"architectures", {"GPT2LMHeadModel"}},
            {"model_type", "gpt2"},
            {"activation_function", "gelu_new"},
            {"n_embd", c.hidden},
            {"n_head", c.heads},
            {"n_inner", c.ffn},
            {"n_layer", c.layers},
            {"n_positions", c.seq},
            {"layer_norm_epsilon", c.norm_eps},
            {"embd_pdrop", c.dropout},
            {"resid_pdrop", c.dropout},
            {"attn_pdrop", 0.0}};
  } else if (c.kind == ModelKind::kLlama) {
    json = {{"architectures", {"LlamaForCausalLM"}},
            {"model_type", "llama"},
            {"hidden_act", "silu"},
            {"hidden_size", c.hidden},
            {"intermediate_size", c.ffn},
            {"num_hidden_layers", c.layers},
            {"num_attention_heads", c.heads},
            {"num_key_value_heads", c.kv_heads},
            {"head_dim", c.hidden / c.heads},
            {"max_position_embeddings", c.seq},
            {"rms_norm_eps", c.norm_eps},
            {"rope_theta", c.rope_theta},
            {"attention_bias", false},
            {"mlp_bias", false}};
  } else {
    hugging_face_rules(c);  // throws: no counterpart
  }
  json["vocab_size"] = c.vocab;
  json["tie_word_embeddings"] = c.tied;
  json["torch_dtype"] = type_name();
  // Their default tokens would lie outside a small vocabulary.
  json["bos_token_id"] = nullptr;
  json["eos_token_id"] = nullptr;
  return json.dump(2) + "\n";
}

}  // namespace trireme
