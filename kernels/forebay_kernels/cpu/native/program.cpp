// Runs a program: its instructions one after another, each shared out to the threads of a pool.
#include <chrono>
#include <cstring>
#include <memory>
#include <vector>

#include "attention.h"
#include "export.h"
#include "instructions.h"
#include "linear.h"
#include "pool.h"
#include "row_kernels.h"
#include "scratch.h"
#include "step.h"

namespace forebay {

// What a step may hold; mirrored by step.py.
struct Limits {
    int32_t num_ids;
    int32_t num_positions;
    int32_t num_blocks;
    int32_t block_size;
};

namespace {

// Numbers that one thread works on in less time than it takes to tell another.
constexpr int64_t numbers_a_unit = 8192;

// fn(row) for each row, by several threads where they are many numbers.
template <class Fn>
void for_rows(Pool& pool, int num_rows, int64_t row_numbers, const Fn& fn) {
    if (num_rows * row_numbers <= 2 * numbers_a_unit) {
        for (int row = 0; row < num_rows; ++row) fn(row);
        return;
    }
    int rows_a_unit = static_cast<int>(numbers_a_unit / row_numbers);
    if (rows_a_unit < 1) rows_a_unit = 1;
    pool.run((num_rows + rows_a_unit - 1) / rows_a_unit, [&](int unit, int) {
        const int end = (unit + 1) * rows_a_unit;
        for (int row = unit * rows_a_unit; row < (end < num_rows ? end : num_rows); ++row) fn(row);
    });
}

int64_t now() {
    const auto since = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

class Program {
  public:
    // beside: whose scratch this one uses, too, or null.
    Program(const Instruction* const* instructions, int num_instructions, const Limits& limits,
            int num_threads, const Program* beside)
        : instructions_(instructions, instructions + num_instructions),
          limits_(limits),
          scratch_(beside ? beside->scratch_ : std::make_shared<Scratch>(num_threads)) {}

    // Whether the step is within the limits; else nothing is run. nanoseconds: of each operation,
    // added to what is there; or null.
    bool run(const Step& step, Pool& pool, int64_t* nanoseconds) {
        if (!is_valid(step)) return false;
        const Pool::Session session(pool);
        planned_for_ = nullptr;
        for (const Instruction* instruction : instructions_) {
            const int64_t start = nanoseconds == nullptr ? 0 : now();
            run(*instruction, step, pool);
            if (nanoseconds == nullptr) continue;
            nanoseconds[static_cast<int>(instruction->operation)] += now() - start;
        }
        return true;
    }

  private:
    bool is_valid(const Step& step) const;
    bool is_valid_sequence(const Step& step, int seq) const;
    void run(const Instruction& instruction, const Step& step, Pool& pool);

    void run(const Embedding&, const Step&, Pool&);
    void run(const RmsNorm&, int num_rows, Pool&);
    void run(const LinearProduct&, int num_rows, Pool&);
    void run(const Add&, int num_rows, Pool&);
    void run(const RotateAndWrite&, const Step&, Pool&);
    void run(const Attention&, const Step&, Pool&);
    void run(const GateMul&, int num_rows, Pool&);
    void run(const Softcap&, int num_rows, Pool&);
    void run(const Scale&, int num_rows, Pool&);
    void run(const TakeSampled&, const Step&, Pool&);
    void run(const FlagFinite&, int num_rows, Pool&);

    std::vector<const Instruction*> instructions_;
    Limits limits_;
    std::shared_ptr<Scratch> scratch_;
    AttentionPlan plan_;
    const Attention* planned_for_ = nullptr;
};

bool is_below(int64_t number, int64_t limit) { return number >= 0 && number < limit; }

bool Program::is_valid(const Step& step) const {
    const int64_t num_slots = int64_t{limits_.num_blocks} * limits_.block_size;
    for (int row = 0; row < step.num_tokens; ++row) {
        if (!is_below(step.token_ids[row], limits_.num_ids) ||
            !is_below(step.positions[row], limits_.num_positions) ||
            step.slots[row] >= num_slots) {
            return false;
        }
    }
    for (int row = 0; row < step.num_sampled; ++row) {
        if (!is_below(step.sampled_rows[row], step.num_tokens)) return false;
    }
    if (step.num_seqs > 0 && step.query_starts[0] < 0) return false;
    for (int seq = 0; seq < step.num_seqs; ++seq) {
        if (!is_valid_sequence(step, seq)) return false;
    }
    return true;
}

bool Program::is_valid_sequence(const Step& step, int seq) const {
    const int start = step.query_starts[seq], end = step.query_starts[seq + 1];
    const int seq_len = step.seq_lens[seq];
    if (end < start || end > step.num_tokens || seq_len < end - start) return false;
    const int num_blocks = (seq_len + limits_.block_size - 1) / limits_.block_size;
    if (num_blocks > step.block_table_stride) return false;
    const int32_t* blocks = step.block_tables + int64_t{seq} * step.block_table_stride;
    for (int i = 0; i < num_blocks; ++i) {
        if (!is_below(blocks[i], limits_.num_blocks)) return false;
    }
    return true;
}

void Program::run(const Instruction& instruction, const Step& step, Pool& pool) {
    const int num_rows =
        instruction.rows == RowsOf::sampled ? step.num_sampled : step.num_tokens;
    switch (instruction.operation) {
        case Operation::embedding:
            return run(static_cast<const Embedding&>(instruction), step, pool);
        case Operation::rms_norm:
            return run(static_cast<const RmsNorm&>(instruction), num_rows, pool);
        case Operation::linear:
            return run(static_cast<const LinearProduct&>(instruction), num_rows, pool);
        case Operation::add: return run(static_cast<const Add&>(instruction), num_rows, pool);
        case Operation::rotate_and_write:
            return run(static_cast<const RotateAndWrite&>(instruction), step, pool);
        case Operation::attention:
            return run(static_cast<const Attention&>(instruction), step, pool);
        case Operation::gate_mul:
            return run(static_cast<const GateMul&>(instruction), num_rows, pool);
        case Operation::softcap:
            return run(static_cast<const Softcap&>(instruction), num_rows, pool);
        case Operation::scale: return run(static_cast<const Scale&>(instruction), num_rows, pool);
        case Operation::take_sampled:
            return run(static_cast<const TakeSampled&>(instruction), step, pool);
        case Operation::flag_finite:
            return run(static_cast<const FlagFinite&>(instruction), num_rows, pool);
    }
}

void Program::run(const Embedding& with, const Step& step, Pool& pool) {
    const RowKernels& kernels = row_kernels();
    const int64_t width = with.width;
    for_rows(pool, step.num_tokens, width, [&](int row) {
        const int64_t id = step.token_ids[row];
        float* out = with.out + row * width;
        if (with.matrix != nullptr) {
            embedding_row(*with.matrix, static_cast<int>(id), out);
            if (with.scale != 1.0f) kernels.scale(out, with.width, with.scale);
            return;
        }
        const int64_t bytes = with.number == Number::float32 ? 4 : 2;
        const uint8_t* stored = static_cast<const uint8_t*>(with.table) + id * width * bytes;
        kernels.widen(stored, with.number, with.width, with.scale, out);
    });
}

void Program::run(const RmsNorm& with, int num_rows, Pool& pool) {
    const RowKernels& kernels = row_kernels();
    const int64_t width = with.width;
    for_rows(pool, num_rows, width, [&](int row) {
        kernels.rms_norm(with.x + row * width, with.weight, with.width, with.eps,
                         with.out + row * width);
    });
}

void Program::run(const LinearProduct& with, int num_rows, Pool& pool) {
    const LinearCall call = {with.x,   with.x_stride,   num_rows,       with.bias,
                             with.out, with.out_stride, with.adds != 0, with.input_form};
    linear(*with.matrix, call, pool, *scratch_);
}

void Program::run(const Add& with, int num_rows, Pool& pool) {
    const RowKernels& kernels = row_kernels();
    const int64_t width = with.width;
    for_rows(pool, num_rows, width, [&](int row) {
        kernels.add(with.x + row * width, with.width, with.to + row * width);
    });
}

void Program::run(const RotateAndWrite& with, const Step& step, Pool& pool) {
    const RowKernels& kernels = row_kernels();
    const int64_t width =
        int64_t{with.num_heads + 2 * with.cache.num_kv_heads} * with.cache.head_dim;
    const int64_t out_width = int64_t{with.num_heads} * with.cache.head_dim;
    for_rows(pool, step.num_tokens, 2 * width, [&](int row) {
        kernels.rotate_and_write(with, with.qkv + row * width, step.positions[row],
                                 step.slots[row], with.queries + row * out_width);
    });
}

void Program::run(const Attention& with, const Step& step, Pool& pool) {
    const Attention* planned = planned_for_;
    if (planned == nullptr || planned->window != with.window ||
        planned->num_heads != with.num_heads ||
        planned->cache.num_kv_heads != with.cache.num_kv_heads ||
        planned->cache.head_dim != with.cache.head_dim) {
        plan_.build(with, step, pool.num_threads());
        planned_for_ = &with;
    }
    const int64_t width = int64_t{with.num_heads} * with.cache.head_dim;
    const int first = step.num_seqs > 0 ? step.query_starts[0] : step.num_tokens;
    const int end = step.num_seqs > 0 ? step.query_starts[step.num_seqs] : step.num_tokens;
    std::memset(with.out, 0, 4 * width * first);
    std::memset(with.out + end * width, 0, 4 * width * (step.num_tokens - end));
    plan_.run(with, pool, *scratch_);
}

void Program::run(const GateMul& with, int num_rows, Pool& pool) {
    const RowKernels& kernels = row_kernels();
    const int64_t width = with.width;
    for_rows(pool, num_rows, 4 * width, [&](int row) {
        kernels.gate_mul(with.gate_up + row * 2 * width, with.gate, with.width,
                         with.out + row * width);
    });
}

void Program::run(const Softcap& with, int num_rows, Pool& pool) {
    const RowKernels& kernels = row_kernels();
    const int64_t width = with.width;
    for_rows(pool, num_rows, 4 * width,
             [&](int row) { kernels.softcap(with.x + row * width, with.width, with.cap); });
}

void Program::run(const Scale& with, int num_rows, Pool& pool) {
    const RowKernels& kernels = row_kernels();
    const int64_t width = with.width;
    for_rows(pool, num_rows, width,
             [&](int row) { kernels.scale(with.x + row * width, with.width, with.factor); });
}

void Program::run(const TakeSampled& with, const Step& step, Pool& pool) {
    const int64_t width = with.width;
    for_rows(pool, step.num_sampled, width, [&](int row) {
        std::memcpy(with.out + row * width, with.x + step.sampled_rows[row] * width, 4 * width);
    });
}

void Program::run(const FlagFinite& with, int num_rows, Pool& pool) {
    const RowKernels& kernels = row_kernels();
    const int64_t width = with.width;
    for_rows(pool, num_rows, width, [&](int row) {
        with.flags[row] = kernels.is_finite(with.x + row * width, with.width);
    });
}

}  // namespace
}  // namespace forebay

// A program of instructions that stand as long as it does. Freed by fb_delete_program.
// beside: null, or a program of as many threads that never runs at the same time: its scratch is
// used, and stays as long as either does.
FB_EXPORT void* fb_new_program(const forebay::Instruction* const* instructions,
                               int num_instructions, const forebay::Limits* limits,
                               int num_threads, const void* beside) {
    return new forebay::Program(instructions, num_instructions, *limits, num_threads,
                                static_cast<const forebay::Program*>(beside));
}

FB_EXPORT void fb_delete_program(void* program) { delete static_cast<forebay::Program*>(program); }

// Whether the step was within the limits; else nothing was run. nanoseconds [operations] or null.
FB_EXPORT int fb_run_program(void* program, const forebay::Step* step, forebay::Pool* pool,
                             int64_t* nanoseconds) {
    return static_cast<forebay::Program*>(program)->run(*step, *pool, nanoseconds);
}

// What an instruction takes of memory, by its operation's number; 0 past the last.
FB_EXPORT int64_t fb_instruction_bytes(int operation) {
    switch (static_cast<forebay::Operation>(operation)) {
        case forebay::Operation::embedding: return sizeof(forebay::Embedding);
        case forebay::Operation::rms_norm: return sizeof(forebay::RmsNorm);
        case forebay::Operation::linear: return sizeof(forebay::LinearProduct);
        case forebay::Operation::add: return sizeof(forebay::Add);
        case forebay::Operation::rotate_and_write: return sizeof(forebay::RotateAndWrite);
        case forebay::Operation::attention: return sizeof(forebay::Attention);
        case forebay::Operation::gate_mul: return sizeof(forebay::GateMul);
        case forebay::Operation::softcap: return sizeof(forebay::Softcap);
        case forebay::Operation::scale: return sizeof(forebay::Scale);
        case forebay::Operation::take_sampled: return sizeof(forebay::TakeSampled);
        case forebay::Operation::flag_finite: return sizeof(forebay::FlagFinite);
    }
    return 0;
}
