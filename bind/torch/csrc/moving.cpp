// SPDX-License-Identifier: BSD-3-Clause
// moving.cpp - calls that move data and reduce nothing: broadcast,
// all-gather, gather, scatter, all-to-all; see group.h.
#include "parts.h"

namespace tutti_torch
{

WorkPtr ProcessGroupTutti::broadcast(Tensors &tensors,
                                     const c10d::BroadcastOptions &opts)
{
    if (!accepts([&] {
            c10d::assertRootRank(complain("broadcast"), opts.rootRank, size_);
            c10d::assertRootTensor(complain("broadcast"), opts.rootTensor,
                                   static_cast<int64_t>(tensors.size()));
            check_tensors("broadcast", tensors);
            c10d::assertTypeAndSizesMatch(complain("broadcast"), tensors,
                                          tensors[0].options(),
                                          tensors[0].sizes());
        }))
        return nullptr;
    return start(job(OpType::BROADCAST, opts, tensors, {tensors}),
                 [&](Call &call, const tutti_call_opts &o) {
                     const auto &t = tensors[opts.rootTensor];
                     const auto e = to_move(t);
                     const int root = static_cast<int>(opts.rootRank);
                     const auto place = rank_ == root
                                            ? Place{packed(t), nullptr}
                                            : place_for(t);
                     auto after = place.after;
                     if (tensors.size() > 1)
                         after = copies_to(tensors, place.to);
                     call.add(
                         o,
                         [&](auto *c, auto *p, auto **req) {
                             void *at = place.to.data_ptr();
                             return tutti_broadcast(c, at, at, count_of(t, e),
                                                    e.type, root, p, req);
                         },
                         {t, place.to}, after);
                     call.hold(tensors);
                 });
}

void ProcessGroupTutti::add_allgather(Call &call, const tutti_call_opts &opts,
                                      const at::Tensor &output,
                                      const at::Tensor &input)
{
    const char *what = "_allgather_base";
    check_tensors(what, {output, input});
    check_same_type(what, input, output);
    if (input.numel() * size_ != output.numel())
        complain(what)(c10::str(
            "output tensor size must be equal to world_size times input tensor "
            "size (",
            output.numel(), " is not ", size_, " * ", input.numel(), ")"));
    const auto e = to_move(input);
    auto in = packed(input);
    auto place = place_for(output);
    call.add(
        opts,
        [&](auto *c, auto *o, auto **req) {
            return tutti_all_gather(c, in.data_ptr(), place.to.data_ptr(),
                                    count_of(input, e), e.type, o, req);
        },
        {in, output, place.to}, place.after);
}

WorkPtr ProcessGroupTutti::_allgather_base(at::Tensor &output,
                                           at::Tensor &input,
                                           const c10d::AllgatherOptions &opts)
{
    return start(job(OpType::_ALLGATHER_BASE, opts, {input}, {{output}}),
                 [&](Call &call, const tutti_call_opts &o) {
                     add_allgather(call, o, output, input);
                 });
}

WorkPtr ProcessGroupTutti::allgather_into_tensor_coalesced(
    Tensors &outputs, Tensors &inputs, const c10d::AllgatherOptions &opts)
{
    if (!accepts([&] {
            check_same_length("allgather_into_tensor_coalesced", outputs.size(),
                              inputs.size());
        }))
        return nullptr;
    return start(job(OpType::_ALLGATHER_BASE, opts, inputs, {outputs}),
                 [&](Call &call, const tutti_call_opts &o) {
                     for (size_t i = 0; i < inputs.size(); i++)
                         add_allgather(call, o, outputs[i], inputs[i]);
                 });
}

// Sizes may differ, where all ranks know them. Each rank has as many outputs as
// there are inputs. `after`, if any, is done last.
void ProcessGroupTutti::add_allgather_list(Call &call,
                                           const tutti_call_opts &opts,
                                           const Tensors &outputs,
                                           const Tensors &inputs, Step after)
{
    const char *what = "allgather";
    const size_t n = inputs.size();
    check_tensors(what, outputs);
    check_tensors(what, inputs);
    for (size_t i = 0; i < n; i++) {
        const auto &mine = outputs[static_cast<size_t>(rank_) * n + i];
        if (mine.numel() != inputs[i].numel())
            c10d::assertSizesMatch(complain(what), inputs[i].sizes(), {mine},
                                   0);
    }
    const auto e = to_move(inputs[0]);
    std::vector<size_t> counts(static_cast<size_t>(size_), 0);
    for (size_t i = 0; i < outputs.size(); i++) {
        check_same_type(what, inputs[i % n], outputs[i]);
        check_same_type(what, inputs[0], outputs[i]);
        counts[i / n] += count_of(outputs[i], e);
    }
    Row in(inputs), row(outputs);
    in.fill();
    auto keep = outputs;
    keep.insert(keep.end(), inputs.begin(), inputs.end());
    keep.insert(keep.end(), {in.tensor(), row.tensor()});
    Step last = row.unfill();
    if (after)
        last = [first = std::move(last), then = std::move(after)] {
            if (first)
                first();
            then();
        };
    call.add(
        opts,
        [&](auto *c, auto *o, auto **req) {
            return tutti_all_gather_v(c, in.data(), row.data(), counts.data(),
                                      e.type, o, req);
        },
        std::move(keep), std::move(last));
}

WorkPtr ProcessGroupTutti::allgather(std::vector<Tensors> &outputs,
                                     Tensors &inputs,
                                     const c10d::AllgatherOptions &opts)
{
    const char *what = "allgather";
    const size_t n = static_cast<size_t>(size_) * inputs.size();
    if (!accepts([&] {
            c10d::assertNonEmpty(complain(what), inputs);
            check_same_length(what, outputs.size(), inputs.size());
            for (size_t i = 0; i < outputs.size(); i++)
                if (outputs[i].size() != n)
                    complain(what)(
                        c10::str("invalid output tensor list at index ", i,
                                 " (expected length ", n, ", got ",
                                 outputs[i].size(), ")"));
        }))
        return nullptr;
    Step after; // the other lists get the same
    if (inputs.size() > 1)
        after = [outputs] {
            for (const auto &list : outputs)
                for (size_t i = 0; i < list.size(); i++)
                    list[i].detach().copy_(outputs[0][i]);
        };
    return start(job(OpType::ALLGATHER, opts, inputs, outputs),
                 [&](Call &call, const tutti_call_opts &o) {
                     add_allgather_list(call, o, outputs[0], inputs, after);
                     for (size_t i = 1; i < outputs.size(); i++)
                         call.hold(outputs[i]);
                 });
}

WorkPtr
ProcessGroupTutti::allgather_coalesced(std::vector<Tensors> &outputs,
                                       Tensors &inputs,
                                       const c10d::AllgatherOptions &opts)
{
    const char *what = "allgather_coalesced";
    if (!accepts([&] {
            c10d::assertNonEmpty(complain(what), inputs);
            check_columns(what, outputs, inputs.size(), size_);
        }))
        return nullptr;
    return start(job(OpType::ALLGATHER_COALESCED, opts, inputs, outputs),
                 [&](Call &call, const tutti_call_opts &o) {
                     for (size_t i = 0; i < inputs.size(); i++) {
                         Tensors column;
                         for (const auto &list : outputs)
                             column.push_back(list[i]);
                         add_allgather_list(call, o, column, {inputs[i]},
                                            nullptr);
                     }
                 });
}

WorkPtr ProcessGroupTutti::gather(std::vector<Tensors> &outputs,
                                  Tensors &inputs,
                                  const c10d::GatherOptions &opts)
{
    const char *what = "gather";
    const int root = static_cast<int>(opts.rootRank);
    if (!accepts([&] {
            c10d::assertRootRank(complain(what), opts.rootRank, size_);
            c10d::assertSingleElementInput(complain(what), inputs);
            check_tensors(what, inputs);
            if (rank_ == root) {
                check_row(what, "output", outputs, size_);
                check_tensors(what, outputs[0]);
                c10d::assertTypeAndSizesMatch(complain(what), outputs[0],
                                              inputs[0].options(),
                                              inputs[0].sizes());
            } else {
                check_empty(what, "output", outputs);
            }
        }))
        return nullptr;
    return start(job(OpType::GATHER, opts, inputs, outputs),
                 [&](Call &call, const tutti_call_opts &o) {
                     const auto e = to_move(inputs[0]);
                     auto in = packed(inputs[0]);
                     Row row(rank_ == root ? outputs[0] : Tensors());
                     auto keep = rank_ == root ? outputs[0] : Tensors();
                     keep.insert(keep.end(), {in, row.tensor()});
                     call.add(
                         o,
                         [&](auto *c, auto *p, auto **req) {
                             return tutti_gather(
                                 c, in.data_ptr(),
                                 rank_ == root ? row.data() : nullptr,
                                 count_of(in, e), e.type, root, p, req);
                         },
                         keep, rank_ == root ? row.unfill() : nullptr);
                 });
}

WorkPtr ProcessGroupTutti::scatter(Tensors &outputs,
                                   std::vector<Tensors> &inputs,
                                   const c10d::ScatterOptions &opts)
{
    const char *what = "scatter";
    const int root = static_cast<int>(opts.rootRank);
    if (!accepts([&] {
            c10d::assertRootRank(complain(what), opts.rootRank, size_);
            c10d::assertSingleElementOutput(complain(what), outputs);
            check_tensors(what, outputs);
            if (rank_ == root) {
                check_row(what, "input", inputs, size_);
                check_tensors(what, inputs[0]);
                c10d::assertTypeAndSizesMatch(complain(what), inputs[0],
                                              outputs[0].options(),
                                              outputs[0].sizes());
            } else {
                check_empty(what, "input", inputs);
            }
        }))
        return nullptr;
    return start(
        job(OpType::SCATTER, opts, rank_ == root ? inputs[0] : Tensors(),
            {outputs}),
        [&](Call &call, const tutti_call_opts &o) {
            const auto e = to_move(outputs[0]);
            Row row(rank_ == root ? inputs[0] : Tensors());
            row.fill();
            auto place = place_for(outputs[0]);
            auto keep = rank_ == root ? inputs[0] : Tensors();
            keep.insert(keep.end(), {outputs[0], place.to, row.tensor()});
            call.add(
                o,
                [&](auto *c, auto *p, auto **req) {
                    return tutti_scatter(
                        c, rank_ == root ? row.data() : nullptr,
                        place.to.data_ptr(), count_of(outputs[0], e), e.type,
                        root, p, req);
                },
                keep, place.after);
        });
}

namespace
{

// Elements for each rank, of a tensor that is split along dimension 0.
std::vector<size_t> split_counts(const at::Tensor &t,
                                 const std::vector<int64_t> &splits, int size,
                                 const Elements &e)
{
    c10d::checkSplitSizes(splits, t, size);
    const int64_t rows = t.size(0);
    const size_t row = rows > 0 ? count_of(t, e) / rows : 0;
    std::vector<size_t> counts;
    for (int r = 0; r < size; r++) {
        const int64_t n = splits.empty() ? rows / size : splits[r];
        TORCH_CHECK(n >= 0, "ProcessGroupTutti::alltoall_base: a split of ", n);
        counts.push_back(static_cast<size_t>(n) * row);
    }
    return counts;
}

} // namespace

WorkPtr ProcessGroupTutti::alltoall_base(at::Tensor &output, at::Tensor &input,
                                         std::vector<int64_t> &output_splits,
                                         std::vector<int64_t> &input_splits,
                                         const c10d::AllToAllOptions &opts)
{
    const char *what = "alltoall_base";
    if (!accepts([&] {
            check_tensors(what, {output, input});
            check_same_type(what, input, output);
            TORCH_CHECK(
                input.dim() > 0 && output.dim() > 0,
                "ProcessGroupTutti::alltoall_base: a tensor without dimensions "
                "cannot be "
                "split");
        }))
        return nullptr;
    return start(
        job(OpType::ALLTOALL_BASE, opts, {input}, {{output}}),
        [&](Call &call, const tutti_call_opts &o) {
            const auto e = to_move(input);
            const auto n_in = split_counts(input, input_splits, size_, e);
            const auto n_out = split_counts(output, output_splits, size_, e);
            auto in = packed(input);
            auto place = place_for(output);
            call.add(
                o,
                [&](auto *c, auto *p, auto **req) {
                    return tutti_all_to_all_v(c, in.data_ptr(), n_in.data(),
                                              place.to.data_ptr(), n_out.data(),
                                              e.type, p, req);
                },
                {in, output, place.to}, place.after);
        });
}

WorkPtr ProcessGroupTutti::alltoall(Tensors &outputs, Tensors &inputs,
                                    const c10d::AllToAllOptions &opts)
{
    const char *what = "alltoall";
    if (!accepts([&] {
            check_world_size(what, "input", inputs.size(), size_);
            check_world_size(what, "output", outputs.size(), size_);
            check_tensors(what, outputs);
            check_tensors(what, inputs);
            for (int r = 0; r < size_; r++) {
                check_same_type(what, inputs[0], inputs[r]);
                check_same_type(what, inputs[0], outputs[r]);
            }
        }))
        return nullptr;
    return start(job(OpType::ALLTOALL, opts, inputs, {outputs}),
                 [&](Call &call, const tutti_call_opts &o) {
                     const auto e = to_move(inputs[0]);
                     std::vector<size_t> n_in, n_out;
                     for (int r = 0; r < size_; r++) {
                         n_in.push_back(count_of(inputs[r], e));
                         n_out.push_back(count_of(outputs[r], e));
                     }
                     Row from(inputs), to(outputs);
                     from.fill();
                     auto keep = inputs;
                     keep.insert(keep.end(), outputs.begin(), outputs.end());
                     keep.insert(keep.end(), {from.tensor(), to.tensor()});
                     call.add(
                         o,
                         [&](auto *c, auto *p, auto **req) {
                             return tutti_all_to_all_v(
                                 c, from.data(), n_in.data(), to.data(),
                                 n_out.data(), e.type, p, req);
                         },
                         keep, to.unfill());
                 });
}

} // namespace tutti_torch
