"""One chat request by the official client, printed as it arrives: `chat.py URL MODEL QUESTION`."""

import sys

import openai


def main() -> None:
    """Ask, and print each piece of the answer when it comes."""
    try:
        ask(*sys.argv[1:])
    except openai.OpenAIError as error:
        sys.exit(f"The request failed: {error}")


def ask(base_url: str, model: str, question: str) -> None:
    """Print the answer of one chat request."""
    # A Service answers a moment after its pod is Ready: when the node has heard of it.
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=5)
    stream = client.chat.completions.create(
        model=model,
        messages=[{"role": "user", "content": question}],
        max_tokens=96,
        temperature=0,
        stream=True,
    )
    for chunk in stream:
        for choice in chunk.choices:
            print(choice.delta.content or "", end="", flush=True)
    print()


if __name__ == "__main__":
    main()
