#include <algorithm>

#include "trireme/config/key.h"
#include "trireme/program/schedules/schedule.h"

namespace trireme {
namespace {

template <auto section, auto member>
ValuePointer pointer_to(Config& config) {
  auto& value = config.*section.*member;
  using Type = std::remove_reference_t<decltype(value)>;
  if constexpr (Named<Type> && !std::is_same_v<Type, ModelKind>) {
    static_assert(sizeof(Type) == 1);
    return Choice{reinterpret_cast<uint8_t*>(&value), all_names<Type>()};
  } else {
    return &value;
  }
}

// A key has its member's name, so the compiler rejects one without the other.
#define KEY(section, member) #section, #member, &pointer_to < &Config::section, &decltype(Config::section)::member>

Allowed range(double least, double most, std::string_view unit = {}) { return {least, most, {}, unit}; }
/// A subset of an enum's values.
template <Named Enum>
Allowed one_of(std::initializer_list<Enum> values) {
  Allowed allowed;
  for (const Enum value : values) allowed.names.push_back(name_of(value));
  return allowed;
}
Allowed one_of_or_file(std::vector<std::string_view> names, std::string_view file) {
  return {0, 0, std::move(names), {}, file};
}
const Allowed kAny;  // any text, switch or name of the enum

constexpr double kMaxSteps = 1e9, kMaxBatch = 1e6, kMaxWorkers = 1e6, kMaxSize = 1e6;

/// Adds what follows from a key's type: its kind, and of an enum its names and aliases of number types.
void add_type(Key& key, Config& any) {
  const ValuePointer pointer = key.pointer(any);
  key.kind = static_cast<KeyKind>(pointer.index());
  const auto* choice = std::get_if<Choice>(&pointer);
  const bool is_kind = std::holds_alternative<ModelKind*>(pointer);
  if (choice == nullptr && !is_kind) return;
  const auto all = is_kind ? all_names<ModelKind>() : choice->names;
  std::vector<std::string_view>& names = key.allowed.names;
  if (names.empty()) names.assign(all.begin(), all.end());
  for (const auto& alias : kNumberTypeAliases) {
    if (std::count(names.begin(), names.end(), alias.second) > 0) key.allowed.aliases.push_back(alias);
  }
}

std::vector<Key> make_keys() {
  return {
      {KEY(model, preset), kAny, "start from this preset's values; the list is below"},
      {KEY(model, library), kAny,
       "a shared library with models of your own, whose keys are in [model.NAME]; empty: none"},
      {KEY(model, kind),
       {0, 0, {}, {}, {}, {{"gpt", "gpt2"}}},
       "what is built, or a model of model.library; own: what a program gives to its Trainer"},
      {KEY(model, layers), range(1, 1e4), "transformer blocks; mlp: hidden layers"},
      {KEY(model, hidden), range(1, kMaxSize), "width of a layer"},
      {KEY(model, heads), range(1, 1e5), "attention heads; must divide model.hidden"},
      {KEY(model, kv_heads), range(0, 1e5), "llama: heads of keys and values; 0: as many as model.heads"},
      {KEY(model, ffn), range(0, 1e7),
       "width inside the feed-forward part; 0: 4 × hidden, llama 8/3 × hidden rounded up to a multiple of 256"},
      {KEY(model, seq), range(1, 1e7, "tokens"), "length of a sample, and the most positions that the model knows"},
      {KEY(model, vocab), range(2, 1e8, "tokens"), "size of the vocabulary; bytes need 256"},
      {KEY(model, tied), kAny, "the output layer uses the embedding's weights; unless set, true but for llama"},
      {KEY(model, dropout), range(0, 0.99), "gpt2, mlp: share of values dropped while training"},
      {KEY(model, norm_eps), range(0, 1), "added to variances before the root"},
      {KEY(model, rope_theta), range(1, 1e12), "llama: base of the rotary positions"},
      {KEY(model, depth), range(18, 101), "resnet: 18, 34, 50 or 101"},
      {KEY(model, channels), range(1, 1e4), "resnet, mlp: channels of an image"},
      {KEY(model, image), range(1, 1e5, "pixels"), "resnet, mlp: side of an image"},
      {KEY(model, classes), range(2, 1e7), "resnet, mlp: labels"},
      {KEY(model, sync_statistics), kAny, "resnet: BatchNorm over all replicas instead of each micro-batch"},

      {KEY(data, path), kAny,
       "a file, a folder, a pattern (data/*.txt) or names with commas between; empty: generated"},
      {KEY(data, kind), kAny, "what the files hold; auto looks at them"},
      {KEY(data, tokenizer), kAny, "for text: a tokenizer file or folder; empty: bytes"},
      {KEY(data, cache), kAny, "leave files where they are, or read them at the start"},
      {KEY(data, held_out), range(0, 0.5), "share kept from training, to measure on"},
      {KEY(data, split), kAny,
       "where that share comes from: drawn from the whole by train.seed, or the end, for data in the order of time"},
      {KEY(data, generated_samples), range(1, 1e9), "images to generate"},
      {KEY(data, generated_size), range(1, 1e12, "bytes"), "text to generate"},
      {KEY(data, read_ahead), range(1, 1000, "steps"), "steps whose batches are read before they are needed"},

      {KEY(train, steps), range(1, kMaxSteps, "steps"), "optimizer steps"},
      {KEY(train, global_batch), range(1, kMaxBatch, "samples"), "samples of a step, over all workers"},
      {KEY(train, micro_batch), range(1, kMaxBatch, "samples"), "samples that one worker computes at a time"},
      {KEY(train, leaves), range(0, kMaxBatch),
       "runs of micro-batches whose sums are added in a fixed order: the same leaves give the same bits for every dp "
       "that divides them; 0: the largest divisor of the number of micro-batches that is at most 8"},
      {KEY(train, recompute), kAny,
       "what the backward pass computes again instead of keeping it: none, full, selective (of each block its "
       "attention), or layers by number, such as \"0-3,7\""},
      {KEY(train, threads), range(1, 1024), "threads of a worker; part of what fixes the last bits"},
      {KEY(train, seed), range(0, 9007199254740991.0),
       "of first weights, order of samples, held-out samples and generated data"},
      {KEY(train, device), kAny, "where tensors live"},
      {KEY(train, deterministic), kAny,
       "cuda: sums keep their order and algorithms are not chosen by timing, so that bits repeat; false may be faster"},
      {KEY(train, graph), kAny, "cuda: a step of one worker is captured once and then run again as a whole"},
      {KEY(train, eval_every), range(0, kMaxSteps, "steps"), "measure held-out loss this often; 0: only at the end"},
      {KEY(train, eval_batches), range(1, 1e6), "batches of train.global_batch in a measurement, at most"},
      {KEY(train, clip), range(0, 1e9), "largest norm of all gradients together; 0: off"},
      {KEY(train, on_nan), kAny,
       "when a gradient is not finite: stop, skip the step, or return to the last checkpoint (one is made at the "
       "start)"},
      {KEY(train, log_every), range(1, kMaxSteps, "steps"), "a line of metrics this often"},
      {KEY(train, target_loss), range(0, 1e9), "held-out loss that the run must reach for exit code 0; 0: none"},

      {KEY(optimizer, kind), one_of({OptimizerKind::kAdamW, OptimizerKind::kAdam, OptimizerKind::kSgd}),
       "the rule that changes weights"},
      {KEY(optimizer, lr), range(0, 1000), "learning rate after warm-up"},
      {KEY(optimizer, beta1), range(0, 0.999999), "adamw, adam: decay of the mean"},
      {KEY(optimizer, beta2), range(0, 0.999999999), "adamw, adam: decay of the mean square"},
      {KEY(optimizer, eps), range(0, 1), "adamw, adam: added to the root"},
      {KEY(optimizer, weight_decay), range(0, 100), "pull towards zero; adamw: apart from the gradient"},
      {KEY(optimizer, decay), kAny, "what decays: weights of two or more dims, or everything"},
      {KEY(optimizer, momentum), range(0, 0.999999), "sgd"},
      {KEY(optimizer, nesterov), kAny, "sgd: look ahead; needs momentum"},
      {KEY(optimizer, schedule), kAny, "learning rate after warm-up"},
      {KEY(optimizer, warmup_steps), range(0, kMaxSteps, "steps"), "learning rate rises from zero; 0: off"},
      {KEY(optimizer, min_lr), range(0, 1), "where cosine and linear end, as a fraction of optimizer.lr"},
      {KEY(optimizer, step_every), range(0, kMaxSteps, "steps"), "schedule step: a fall this often"},
      {KEY(optimizer, step_factor), range(0, 1), "schedule step: the factor of a fall"},
      {KEY(optimizer, scale_lr), kAny, "multiply the learning rate by dp, or its root"},

      {KEY(parallel, dp), range(-1, kMaxWorkers), "data parallel: replicas; -1: the rest of the workers"},
      {KEY(parallel, tp), range(-1, kMaxWorkers), "tensor parallel: workers that share each operator"},
      {KEY(parallel, pp), range(-1, kMaxWorkers),
       "pipeline parallel: workers along the pipeline, each with one stage or more"},
      {KEY(parallel, cp), range(-1, kMaxWorkers), "context parallel: workers that share a sequence"},
      {KEY(parallel, ep), range(-1, kMaxWorkers), "expert parallel: workers that share the experts, among those of dp"},
      {KEY(parallel, zero), range(0, 3), "replicas share 1: optimizer state, 2: and gradients, 3: and weights"},
      {KEY(parallel, zero_shards), range(0, kMaxWorkers),
       "replicas that share among themselves, copied by the other groups of so many; 0: all of dp"},
      {KEY(parallel, zero_keep), kAny, "zero 3: weights stay from the forward pass to the backward pass"},
      {KEY(parallel, zero_accumulation), kAny,
       "zero 2 and 3: where micro-batches are summed; whole: as without zero, to the bit; shares: in little memory; "
       "auto: whole; in trireme simulate shares, but for --software trireme"},
      {KEY(parallel, offload), kAny,
       "where master weights and optimizer state lie: a folder, memory (the host's, on GPUs); empty: the device's "
       "memory"},
      {KEY(parallel, offload_weights), kAny,
       "zero 3: weights lie there as well, and a layer's come when it is about to need them"},
      {KEY(parallel, sequence), kAny, "with tp: norms and dropout split along the sequence"},
      {KEY(parallel, schedule), one_of_or_file(schedule_names(), "a CSV file with a dot or slash in its name"),
       "order of a pipeline's work: a built-in one, or yours from a file, as trireme schedule check reads it"},
      {KEY(parallel, interleave), range(1, 1000), "stages of a worker, for interleaved (1: two) and 1f1b"},
      {KEY(parallel, update_every), range(0, kMaxSteps, "micro-batches"),
       "pipedream, pipedream-2bw: of a replica in an update; 0: 1, or as many as fill the pipeline"},
      {KEY(parallel, split), kAny,
       "layers of each stage, \"4,4\", \"4+4\" or \"0-3,4-7\"; empty: stages of equal cost"},
      {KEY(parallel, stages), kAny,
       "dp x tp of each stage of a pipeline, where they differ: \"2x1,1x2\" or \"2x1+1x2\"; empty: all alike. dp alone "
       "changes no "
       "bit"},
      {KEY(parallel, shares), kAny,
       "of the batch, of each replica, where some are faster: \"3,1\"; empty: equal. The numbers stay the same"},
      {KEY(parallel, plan), kAny,
       "a plan file, \"auto\" to ask the planner, or \"try\" to let its best plans show what they can before one is "
       "taken; empty: the degrees above"},
      {KEY(parallel, aggregation), kAny,
       "of gradients over micro-batches; adasum: over replicas; server: averaged by parameter servers"},
      {KEY(parallel, bucket_mb), range(0, 4096, "MiB"),
       "gradients that are reduced together; 0: 4, with zero 2 and 3 at most a 128th of a worker's"},
      {KEY(parallel, overlap),
       {0, 0, {}, {}, {}, {{"true", "on"}, {"false", "off"}}},
       "send gradients while the backward pass goes on; auto: on; in trireme simulate and plan as the cluster's "
       "software does"},

      {KEY(precision, compute), one_of({NumberType::kFloat32, NumberType::kBfloat16, NumberType::kFloat16}),
       "type of activations and products"},
      {KEY(precision, matmul), kAny,
       "type of the products in gpt2's and llama's blocks; fp8: cuda, with precision.compute bfloat16"},
      {KEY(precision, gradients), kAny, "type in which gradients are summed"},
      {KEY(precision, loss_scale_init), range(1, 1e30), "float16: first factor of the loss"},
      {KEY(precision, loss_scale_growth_every), range(1, kMaxSteps, "steps"),
       "float16: the factor doubles after so many steps without overflow"},

      {KEY(compression, method), kAny,
       "how gradients travel between replicas; onebit_adam: how momenta do, after warmup_steps"},
      {KEY(compression, gather), kAny, "zero 3: how weights travel to those who compute with them"},
      {KEY(compression, density), range(1e-6, 1), "topk, dgc: fraction of elements sent"},
      {KEY(compression, bits), range(1, 8), "qsgd: 1, 2, 4 or 8"},
      {KEY(compression, rank), range(1, 256), "powersgd: rank of the factors"},
      {KEY(compression, error_feedback), kAny,
       "what was not sent is added to the next gradient; auto: as the method wants it"},
      {KEY(compression, warmup_steps), range(0, kMaxSteps, "steps"),
       "steps sent dense at first; dgc: of decreasing density; onebit_adam: before the second moment is frozen "
       "(required)"},
      {KEY(compression, momentum), range(0, 0.999999),
       "dgc: momentum applied before selection, instead of the optimizer's"},
      {KEY(compression, clip_deviations), range(0, 100), "terngrad: clip at this many standard deviations; 0: off"},

      {KEY(server, count), range(1, kMaxWorkers), "parameter servers; they run beside the workers"},
      {KEY(server, mode), kAny,
       "weights change when all gradients are there; with each; or with each, nobody too far ahead"},
      {KEY(server, staleness), range(0, kMaxSteps, "steps"),
       "bounded: steps that a worker may be ahead; in training never more than one"},
      {KEY(server, rows), kAny, "of the embedding only the rows of a step's tokens travel; model.tied must be false"},
      {KEY(server, replicate), kAny, "every gradient is kept by two servers before it counts"},

      {KEY(local, method), kAny, "replicas step alone and then average their weights, or take an outer step"},
      {KEY(local, every), range(1, kMaxSteps, "steps"), "how often replicas meet"},
      {KEY(local, after), range(0, kMaxSteps, "steps"), "they meet at every step before this one"},
      {KEY(local, outer_lr), range(0, 10), "diloco: learning rate of the outer step"},
      {KEY(local, outer_momentum), range(0, 1), "diloco: Nesterov's momentum of the outer step"},
      {KEY(local, format), kAny, "diloco: how the outer step travels"},

      {KEY(checkpoint, every), range(0, kMaxSteps, "steps"), "0: only at the end"},
      {KEY(checkpoint, keep), range(1, 1e6), "how many; older ones go once a newer one is verified"},
      {KEY(checkpoint, async), kAny, "training goes on while a checkpoint is written"},
      {KEY(checkpoint, spread), kAny, "every worker writes a share; false: worker 0 writes all"},
      {KEY(checkpoint, resume), kAny, "auto: the newest good one of the run; never; or a checkpoint's folder"},
      {KEY(checkpoint, start_from), kAny,
       "weights under Hugging Face's names: a safetensors file, or a folder with model.safetensors; empty: none"},

      {KEY(elastic, max_restarts), range(0, 1e6), "how often workers are started again after a failure"},

      {KEY(observe, run_dir), kAny, "where the run's files go; empty: runs/NAME-N"},
      {KEY(observe, name), kAny, "name of the run; empty: that of the file or preset"},
      {KEY(observe, tensorboard), kAny, "write files for TensorBoard"},
      {KEY(observe, report), kAny, "write report.html"},
      {KEY(observe, trace_steps), range(0, 1000, "steps"), "times of every instruction, for trireme trace"},
  };
}

#undef KEY

}  // namespace

KeyTable::KeyTable() : keys_(make_keys()) {
  Config any;
  for (Key& key : keys_) add_type(key, any);
  sections_ = {
      {"model", "What is trained."},
      {"data", "What it learns from."},
      {"train", "How long, in which batches, where."},
      {"optimizer", "How weights change."},
      {"parallel",
       "How the work is split over workers. The product of dp, tp, pp and cp is their number, unless there are "
       "stages."},
      {"precision", "In which types it computes."},
      {"compression", "How gradients are compressed before they are sent."},
      {"server", "Parameter servers, with parallel.aggregation = \"server\"."},
      {"local", "Steps that replicas take alone, between meetings."},
      {"checkpoint", "What is kept on disk."},
      {"elastic", "What happens when a worker fails."},
      {"observe", "What a run tells about itself."},
  };
}

}  // namespace trireme
