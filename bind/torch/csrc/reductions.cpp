// SPDX-License-Identifier: BSD-3-Clause
// reductions.cpp - all-reduce, reduce, reduce-scatter; see group.h.
#include "parts.h"

namespace tutti_torch
{

void ProcessGroupTutti::add_allreduce(Call &call, tutti_call_opts opts,
                                      const at::Tensor &t,
                                      const c10d::ReduceOp &op)
{
    const auto e = to_reduce(t, op);
    const auto how = op_of(op);
    const auto n = count_of(t, e);
    auto place = filled_place_for(t);
    opts.scale = scale_of(op);
    call.add(
        opts,
        [&](auto *comm, auto *o, auto **req) {
            void *at = place.to.data_ptr();
            return tutti_all_reduce(comm, at, at, n, e.type, how, o, req);
        },
        {t, place.to}, place.after);
}

WorkPtr ProcessGroupTutti::allreduce(Tensors &tensors,
                                     const c10d::AllreduceOptions &opts)
{
    if (!tensors.empty() && tensors[0].defined() && tensors[0].is_sparse())
        return allreduce_sparse(tensors, opts);
    if (!accepts([&] {
            c10d::assertNonEmpty(complain("allreduce"), tensors);
            check_tensors("allreduce", tensors);
            c10d::assertTypeAndSizesMatch(complain("allreduce"), tensors,
                                          tensors[0].options(),
                                          tensors[0].sizes());
        }))
        return nullptr;
    if (tensors.size() > 1)
        return allreduce_several(tensors, opts);
    return start(job(OpType::ALLREDUCE, opts, tensors, {tensors}),
                 [&](Call &call, const tutti_call_opts &o) {
                     add_allreduce(call, o, tensors[0], opts.reduceOp);
                 });
}

namespace
{

// Of the tensors of one rank; all have the same type and sizes.
at::Tensor reduced(const Tensors &tensors, tutti_op op)
{
    auto all = at::stack(tensors);
    switch (op) {
    case TUTTI_SUM:
    case TUTTI_SCALED_SUM:
        return all.sum(0, false, all.scalar_type());
    case TUTTI_PROD:
        return all.prod(0, false, all.scalar_type());
    case TUTTI_MIN:
        return all.amin(0);
    case TUTTI_MAX:
        return all.amax(0);
    default:
        complain("allreduce")(
            c10::str(tutti_op_name(op), " takes one tensor per rank"));
        return {};
    }
}

} // namespace

// Over all tensors of all ranks; all get the result.
WorkPtr ProcessGroupTutti::allreduce_several(Tensors &tensors,
                                             const c10d::AllreduceOptions &opts)
{
    return start(job(OpType::ALLREDUCE, opts, tensors, {tensors}),
                 [&](Call &call, tutti_call_opts o) {
                     const auto e = to_reduce(tensors[0], opts.reduceOp);
                     const auto how = op_of(opts.reduceOp);
                     at::AutoDispatchBelowADInplaceOrView guard;
                     auto sum = reduced(tensors, how).contiguous();
                     o.scale = scale_of(opts.reduceOp);
                     call.add(
                         o,
                         [&](auto *c, auto *p, auto **req) {
                             return tutti_all_reduce(
                                 c, sum.data_ptr(), sum.data_ptr(),
                                 count_of(sum, e), e.type, how, p, req);
                         },
                         {sum}, copies_to(tensors, sum));
                     call.hold(tensors);
                 });
}

WorkPtr ProcessGroupTutti::allreduce_coalesced(
    Tensors &tensors, const c10d::AllreduceCoalescedOptions &opts)
{
    const char *what = "allreduce_coalesced";
    if (!accepts([&] {
            c10d::assertNonEmpty(complain(what), tensors);
            check_tensors(what, tensors);
            for (const auto &t : tensors)
                if (t.scalar_type() != tensors[0].scalar_type())
                    complain(what)("tensors must all have the same type");
        }))
        return nullptr;
    return start(job(OpType::ALLREDUCE_COALESCED, opts, tensors, {tensors}),
                 [&](Call &call, tutti_call_opts o) {
                     // One call for all: small ones would cost a round each.
                     const auto e = to_reduce(tensors[0], opts.reduceOp);
                     const auto how = op_of(opts.reduceOp);
                     Row row(tensors);
                     row.fill();
                     size_t n = 0;
                     for (const auto &t : tensors)
                         n += count_of(t, e);
                     o.scale = scale_of(opts.reduceOp);
                     auto keep = tensors;
                     keep.push_back(row.tensor());
                     call.add(
                         o,
                         [&](auto *c, auto *p, auto **req) {
                             return tutti_all_reduce(c, row.data(), row.data(),
                                                     n, e.type, how, p, req);
                         },
                         keep, row.unfill());
                 });
}

WorkPtr ProcessGroupTutti::reduce(Tensors &tensors,
                                  const c10d::ReduceOptions &opts)
{
    if (!accepts([&] {
            c10d::assertRootRank(complain("reduce"), opts.rootRank, size_);
            check_one("reduce", tensors);
        }))
        return nullptr;
    return start(job(OpType::REDUCE, opts, tensors, {tensors}),
                 [&](Call &call, tutti_call_opts o) {
                     const auto &t = tensors[0];
                     const auto e = to_reduce(t, opts.reduceOp);
                     const auto how = op_of(opts.reduceOp);
                     const int root = static_cast<int>(opts.rootRank);
                     const auto place = rank_ == root
                                            ? filled_place_for(t)
                                            : Place{packed(t), nullptr};
                     o.scale = scale_of(opts.reduceOp);
                     call.add(
                         o,
                         [&](auto *c, auto *p, auto **req) {
                             void *at = place.to.data_ptr();
                             return tutti_reduce(c, at, at, count_of(t, e),
                                                 e.type, how, root, p, req);
                         },
                         {t, place.to}, place.after);
                 });
}

void ProcessGroupTutti::add_reduce_scatter(Call &call, tutti_call_opts opts,
                                           const at::Tensor &output,
                                           const at::Tensor &input,
                                           const c10d::ReduceOp &op)
{
    const char *what = "_reduce_scatter_base";
    check_tensors(what, {output, input});
    check_same_type(what, input, output);
    if (output.numel() * size_ != input.numel())
        complain(what)(c10::str("input tensor must be the same size as output "
                                "size times world size (",
                                input.numel(), " is not ", output.numel(),
                                " * ", size_, ")"));
    const auto e = to_reduce(output, op);
    const auto how = op_of(op);
    const auto n = count_of(output, e);
    auto in = packed(input);
    auto place = place_for(output);
    opts.scale = scale_of(op);
    call.add(
        opts,
        [&](auto *comm, auto *o, auto **req) {
            return tutti_reduce_scatter(comm, in.data_ptr(),
                                        place.to.data_ptr(), n, e.type, how, o,
                                        req);
        },
        {in, output, place.to}, place.after);
}

WorkPtr
ProcessGroupTutti::_reduce_scatter_base(at::Tensor &output, at::Tensor &input,
                                        const c10d::ReduceScatterOptions &opts)
{
    return start(job(OpType::_REDUCE_SCATTER_BASE, opts, {input}, {{output}}),
                 [&](Call &call, const tutti_call_opts &o) {
                     add_reduce_scatter(call, o, output, input, opts.reduceOp);
                 });
}

WorkPtr ProcessGroupTutti::reduce_scatter_tensor_coalesced(
    Tensors &outputs, Tensors &inputs, const c10d::ReduceScatterOptions &opts)
{
    if (!accepts([&] {
            check_same_length("reduce_scatter_tensor_coalesced", outputs.size(),
                              inputs.size());
        }))
        return nullptr;
    return start(job(OpType::_REDUCE_SCATTER_BASE, opts, inputs, {outputs}),
                 [&](Call &call, const tutti_call_opts &o) {
                     for (size_t i = 0; i < inputs.size(); i++)
                         add_reduce_scatter(call, o, outputs[i], inputs[i],
                                            opts.reduceOp);
                 });
}

WorkPtr
ProcessGroupTutti::reduce_scatter(Tensors &outputs,
                                  std::vector<Tensors> &inputs,
                                  const c10d::ReduceScatterOptions &opts)
{
    const char *what = "reduce_scatter";
    if (!accepts([&] {
            c10d::assertSingleElementOutput(complain(what), outputs);
            check_row(what, "input", inputs, size_);
            check_tensors(what, outputs);
            check_tensors(what, inputs[0]);
            for (const auto &t : inputs[0])
                check_same_type(what, t, outputs[0]);
            if (inputs[0][rank_].numel() != outputs[0].numel())
                complain(what)(
                    "the output has not the size of this rank's input");
        }))
        return nullptr;
    return start(
        job(OpType::REDUCE_SCATTER, opts, inputs[0], {outputs}),
        [&](Call &call, tutti_call_opts o) {
            const auto e = to_reduce(outputs[0], opts.reduceOp);
            const auto how = op_of(opts.reduceOp);
            Row row(inputs[0]);
            row.fill();
            std::vector<size_t> counts;
            for (const auto &t : inputs[0])
                counts.push_back(count_of(t, e));
            auto place = place_for(outputs[0]);
            auto keep = inputs[0];
            keep.insert(keep.end(), {row.tensor(), outputs[0], place.to});
            o.scale = scale_of(opts.reduceOp);
            call.add(
                o,
                [&](auto *c, auto *p, auto **req) {
                    return tutti_reduce_scatter_v(
                        c, row.data(), place.to.data_ptr(), counts.data(),
                        e.type, how, p, req);
                },
                keep, place.after);
        });
}

} // namespace tutti_torch
