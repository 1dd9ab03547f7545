// What is built on libtorch: wrappers of modules, mesh tensors, and the trainer. Link Trireme::torch.
#pragma once

#include "trireme/config/resolve.h"                  // IWYU pragma: export
#include "trireme/models/built_in.h"                 // IWYU pragma: export
#include "trireme/models/model_library.h"            // IWYU pragma: export
#include "trireme/parallel/automatic/parallelize.h"  // IWYU pragma: export
#include "trireme/parallel/data/broadcast.h"         // IWYU pragma: export
#include "trireme/parallel/data/data_parallel.h"     // IWYU pragma: export
#include "trireme/parallel/data/fully_shard.h"       // IWYU pragma: export
#include "trireme/parallel/pipeline/pipeline.h"      // IWYU pragma: export
#include "trireme/parallel/tensor/layout_rules.h"    // IWYU pragma: export
#include "trireme/tensor/mesh_tensor.h"              // IWYU pragma: export
#include "trireme/train/engine_checkpoints.h"        // IWYU pragma: export
#include "trireme/train/run.h"                       // IWYU pragma: export
#include "trireme/train/trainer.h"                   // IWYU pragma: export
#include "trireme/trireme.h"                         // IWYU pragma: export
