// The C interface of single products and of packing. Whoever calls has checked all shapes.
#include <memory>

#include "export.h"
#include "linear.h"
#include "packing.h"
#include "pool.h"
#include "scratch.h"

namespace forebay {
namespace {

// What calls run with, one at a time.
struct Workspace {
    explicit Workspace(Pool& pool) : pool(pool), scratch(pool.num_threads()) {}
    Pool& pool;
    Scratch scratch;
    std::unique_ptr<Pool::Session> session;
};

}  // namespace
}  // namespace forebay

using forebay::Workspace;

// On a pool that outlives it. Freed by fb_delete_workspace.
FB_EXPORT Workspace* fb_new_workspace(forebay::Pool* pool) { return new Workspace(*pool); }

FB_EXPORT void fb_delete_workspace(Workspace* workspace) { delete workspace; }

// Whether its pool's threads stay awake between calls, all of which come from one thread.
FB_EXPORT void fb_keep_awake(Workspace* workspace, int is_awake) {
    workspace->session.reset();
    if (is_awake) workspace->session = std::make_unique<forebay::Pool::Session>(workspace->pool);
}

// See LinearCall for the shapes.
FB_EXPORT void fb_linear(const forebay::Matrix* matrix, const forebay::LinearCall* call,
                         Workspace* workspace) {
    forebay::linear(*matrix, *call, workspace->pool, workspace->scratch);
}

// Weights of outputs as float32: rows [num_rows] int64, out [num_rows][num_inputs].
FB_EXPORT void fb_embedding_rows(const forebay::Matrix* matrix, const int64_t* rows, int num_rows,
                                 float* out, Workspace* workspace) {
    workspace->pool.run(num_rows, [&](int row, int) {
        forebay::embedding_row(*matrix, static_cast<int>(rows[row]),
                               out + int64_t{row} * matrix->num_inputs);
    });
}

FB_EXPORT void fb_pack_codes(const forebay::CodeRows* rows, uint8_t* out, Workspace* workspace) {
    forebay::pack_codes(*rows, out, workspace->pool);
}

FB_EXPORT void fb_pack_dense(const forebay::DenseRows* rows, uint8_t* out, Workspace* workspace) {
    forebay::pack_dense(*rows, out, workspace->pool);
}
