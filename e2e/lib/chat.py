"""One chat request by the official client, printed as it arrives: `chat.py URL MODEL QUESTION`."""

import sys

import openai


def main() -> None:
    """Ask, and print each piece of the answer when it comes."""
    base_url, model, question = sys.argv[1:]
    client = openai.OpenAI(base_url=base_url, api_key="none", max_retries=0)
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
