#include "vocabulary.h"

#include "isa_table.h"

namespace forebay {

FB_CHOOSE_TABLE(VocabularyKernels, vocabulary_kernels)

}  // namespace forebay
